## Measure

.PHONY: chaos
chaos: build $(if $(FLOW_CONTROL),native) ## Inject one fault after another under load (SECONDS=300 SEED=n PROXIES=2 FLOW_CONTROL=1); fails when a servable request is lost
	@$(if $(filter-out 1,$(PROXIES)),tools/setup/debian redis-server)
	@$(target_dir)/debug/bench chaos --seconds $(or $(SECONDS),60) $(addprefix --seed ,$(SEED)) \
		$(addprefix --proxies ,$(PROXIES)) $(if $(FLOW_CONTROL),--flow-control)

.PHONY: soak
soak: build ## Run the same load for long (SECONDS=1830); fails when memory grows or logs flood
	@$(target_dir)/debug/bench soak $(addprefix --seconds ,$(SECONDS))

.PHONY: parity
parity: build ## Compare decisions with the EPP (Go builds it, or EPP=/path/to/epp), side by side in Envoy
	@epp=$$(tools/setup/epp) && EPP=$$epp $(target_dir)/debug/bench parity

.PHONY: bench
bench: tools wasm native ## Measure what the picker costs: proxies in turns, decision, agent, 20 minutes (WRITE=1 into docs; B=--help)
	@tools/setup/debian wrk
	$(CARGO) build --release $(programs) --bins
	@$(target_dir)/release/bench cost $(if $(WRITE),--write) $(B)

.PHONY: bench-epp
bench-epp: tools wasm native ## Compare with the EPP and with round robin, 30 minutes (QUICK=1: 5; ONLY=cost: a part; WRITE=1 into docs)
	@tools/setup/debian wrk
	@$(if $(filter flow-control,$(ONLY)),tools/kube/setup,:)
	$(CARGO) build --release $(programs) --bin metrics-agent --bin bench
	@epp=$$(tools/setup/epp) && EPP=$$epp $(target_dir)/release/bench epp $(if $(QUICK),--quick) $(addprefix --only ,$(ONLY)) $(if $(WRITE),--write)

.PHONY: bench-proxies
bench-proxies: tools native ## Compare proxies that share with one, with such that do not and with the EPP, 33 minutes (QUICK=1: 10; ONLY=choices: a part; WRITE=1 into docs)
	@tools/setup/debian wrk redis-server
	$(CARGO) build --release $(programs) --bin metrics-agent --bin bench
	@$(if $(filter-out choices,$(ONLY)),,epp=$$(tools/setup/epp) && EPP=$$epp) $(target_dir)/release/bench proxies $(if $(QUICK),--quick) \
		$(addprefix --only ,$(ONLY)) $(if $(WRITE),--write) $(B)

.PHONY: bench-intervals
bench-intervals: tools wasm ## Compare scrape intervals of 50 to 500 ms and round robin, without an EPP (QUICK=1: shorter)
	$(CARGO) build --release $(programs) --bin metrics-agent --bin bench
	@$(target_dir)/release/bench epp --only intervals $(if $(QUICK),--quick)

.PHONY: bench-choosing
bench-choosing: tools native ## Compare the configurations of examples/choosing, 11 minutes (QUICK=1: 2; WRITE=1 into docs/reference/configurations.md)
	$(CARGO) build --release $(programs) --bin metrics-agent --bin bench
	@$(target_dir)/release/bench epp --only choosing $(if $(QUICK),--quick) $(if $(WRITE),--write)
