## Measure

.PHONY: bench-program
bench-program: ## Build the program of the measurements without optimization, for chaos, soak, parity and tests
	$(build_programs) --bin bench

.PHONY: chaos
chaos: build bench-program $(if $(FLOW_CONTROL)$(RESUME_STREAMS),native) ## Inject one fault after another under load (SECONDS=300 SEED=n PROXIES=2 FLOW_CONTROL=1 RESUME_STREAMS=1); fails when a servable request is lost
	@$(if $(filter-out 1,$(PROXIES)),tools/setup/debian redis-server)
	@$(target_dir)/debug/bench chaos --seconds $(or $(SECONDS),60) $(addprefix --seed ,$(SEED)) \
		$(addprefix --proxies ,$(PROXIES)) $(if $(FLOW_CONTROL),--flow-control) $(if $(RESUME_STREAMS),--resume-streams)

.PHONY: soak
soak: build bench-program $(if $(WHOLE),native) ## Run the same load for long (SECONDS=1830); fails when memory or open files grow or logs flood (WHOLE=1 SECONDS=3600: two proxies, a store and a queue, while parts are replaced)
	@$(if $(WHOLE),tools/setup/debian redis-server)
	@$(target_dir)/debug/bench soak $(addprefix --seconds ,$(SECONDS)) $(if $(WHOLE),--whole --workers 2 --rate 100)

.PHONY: parity
parity: tools wasm native bench-program ## Compare decisions with the EPP's v0.10.0 and a later commit, side by side in Envoy (FILTER=native, EPP_RULES=v0.10: only these; EPP= or EPP_SOURCE=: where it is; CASES=50000 in all, SEED=n)
	$(build_programs) --bin metrics-agent
	@FORMS='$(if $(filter file,$(origin FILTER)),wasm native,$(FILTER))' VERSIONS='$(or $(EPP_RULES),v0.10 $(if $(EPP),,ebab68792))' CASES='$(CASES)' \
		EPP='$(EPP)' EPP_SOURCE='$(EPP_SOURCE)' tools/test/parity $(target_dir)/debug/bench $(addprefix --seed ,$(SEED))

.PHONY: bench
bench: tools wasm native ## Measure what the picker costs: proxies in turns, decision, agent, 20 minutes (WRITE=1 into docs/benchmarks; B=--help)
	@tools/setup/debian wrk
	$(CARGO) build --release $(programs) --exclude endpoint-picker-fuzz --bins
	@$(target_dir)/release/bench cost $(if $(WRITE),--write) $(B)

.PHONY: trace-request
trace-request: native ## Count the instructions, cache lines and pages of a request by valgrind, and compare them with filter/native/tests/budget/numbers.md
	@tools/setup/debian valgrind
	@tools/test/trace-request $(native)

.PHONY: bench-gateway
bench-gateway: gateway-tools conformance-tools tools native ## Compare requests/s of routes to an InferencePool and to a Service through Envoy Gateway's Envoy, five minutes
	@tools/setup/debian wrk
	$(build_programs) --bin metrics-agent --bin endpoint-picker-model-server
	$(CARGO) test --config 'target."cfg(unix)".runner = ["$(CURDIR)/tools/kube/namespace"]' $(programs) --test cost -- --nocapture

# The studies are a workspace of their own, with the packages of the other lock file.
studies       = cp Cargo.lock studies/Cargo.lock && $(CARGO) $(1) --manifest-path studies/Cargo.toml
study         = $(target_dir)/release/studies $(1) $(if $(QUICK),--quick) $(if $(WRITE),--write)

.PHONY: build-studies
build-studies:
	$(CARGO) build --release -p metrics-agent
	$(call studies,build) --target-dir $(target_dir) --release

.PHONY: check-studies
check-studies: ## Check that the studies compile: format and clippy
	$(call studies,fmt --check)
	$(call studies,clippy) --target-dir $(target_dir) --all-targets -- -D warnings

.PHONY: bench-epp
bench-epp: tools wasm native build-studies ## Compare with the EPP and with round robin, 25 minutes (QUICK=1: 5; ONLY=cost: a part; WRITE=1 into docs/benchmarks)
	@tools/setup/debian wrk
	@epp=$$(tools/setup/epp) && EPP=$$epp $(call study,epp) $(addprefix --only ,$(ONLY))

.PHONY: bench-streams
bench-streams: tools wasm native build-studies ## Hold up to 20 000 streams open through one Envoy, ours and the EPP's, 30 minutes (QUICK=1: 3; ONLY=held, ONLY=traffic: a part; WRITE=1 into docs/benchmarks)
	@tools/setup/debian wrk
	@epp=$$(tools/setup/epp) && EPP=$$epp $(call study,streams) $(addprefix --only ,$(ONLY))

.PHONY: bench-field
bench-field: tools native build-studies ## Compare ways to choose by the field's own tools, half an hour (SIM=/path/to/llm-d-inference-sim, Python 3.12; ONLY=shared-prefixes, conversations, uneven-conversations or adapters; WAYS=default,epp SEED=1; QUICK=1; WRITE=1 into docs/benchmarks)
	@SIM='$(SIM)' tools/setup/field bench-field
	@epp=$$(tools/setup/epp) && EPP=$$epp SIM='$(SIM)' $(call study,field) $(addprefix --only ,$(ONLY)) $(addprefix --seed ,$(SEED))

.PHONY: bench-replay
bench-replay: tools native build-studies ## Compare replayed with measured times to the first token, six minutes (SIM=/path/to/llm-d-inference-sim; QUICK=1; SEED=1; WRITE=1 into docs/benchmarks)
	@SIM='$(SIM)' $(call study,replay) $(addprefix --seed ,$(SEED))

.PHONY: bench-resuming
bench-resuming: tools native build-studies ## Kill one of two vLLM under streams with reasoning and tool calls, 3 minutes (Python 3.12, 5 GB; SEED=1; WRITE=1 into docs/benchmarks)
	@tools/setup/field bench-resuming
	@$(call study,resuming) $(addprefix --seed ,$(SEED))

.PHONY: bench-prefixes
bench-prefixes: tools native build-studies ## Compare predicted with really cached prefixes in front of two vLLM with KV-cache events, 20 minutes (Python 3.12, 5 GB; ONLY=servers or ranks; TURNS=4 REQUESTS=300 SEED=1; QUICK=1; WRITE=1 into docs/benchmarks)
	@tools/setup/field bench-prefixes
	@$(call study,prefixes) $(addprefix --only ,$(ONLY)) $(addprefix --seed ,$(SEED))

.PHONY: bench-choosing
bench-choosing: tools native build-studies ## Compare ways to choose in Envoy, six hours (WORKLOADS=agents,ShareGPT WAYS=default,epp LOADS=0.8 SEEDS=1 WORKERS=1 PHASE=30; QUICK=1; WRITE=1 into docs/benchmarks)
	@$(call study,choosing)

.PHONY: simulate
simulate: ## Compare ways to pick in simulated time, without Envoy, a minute (SEEDS=20 LOADS=0.5,0.8 WORKLOADS=agents VARIANTS=lmetric REQUESTS=9000 INTERVAL=1000; TABLE=regret: the recommended rules in cells of all kinds; TABLE=traces: published traces, TRACE=path: from files; BARS=1: fails when they miss a bar)
	$(CARGO) build --release $(programs) --bin simulate
	@$(target_dir)/release/simulate $(if $(BARS),--bars)
