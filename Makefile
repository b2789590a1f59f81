# Every task of the project. `make` alone lists them.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

CARGO        ?= cargo
target_dir   := $(or $(CARGO_TARGET_DIR),target)
# Always the same packages together, so that cargo builds their shared dependencies once.
test_packages := endpoint-picker-model-server endpoint-picker-harness endpoint-picker-e2e endpoint-picker-kube endpoint-picker-bench
programs     := -p metrics-agent $(addprefix -p ,$(test_packages))
# The modules that cargo builds, and the paths at which envoy.yaml and the tests expect them.
filter_built := $(target_dir)/wasm32-wasip1/wasm/endpoint_picker_wasm.wasm
filter       := target/endpoint_picker.wasm
native_built := $(target_dir)/native/libendpoint_picker_native.so
native       := target/libendpoint_picker.so
# Variants for tests and benches: with a request that traps its VM or panics, and one whose workers share nothing.
trapping     := target/endpoint_picker_trap.wasm
panicking    := target/libendpoint_picker_trap.so
alone        := target/endpoint_picker_alone.wasm
# The form of the filter that is run, tested and measured.
FILTER       ?= wasm
ifeq ($(filter wasm native,$(FILTER)),)
$(error FILTER is "$(FILTER)"; must be wasm or native)
endif
export FILTER
in_filter    := -p endpoint-picker -p endpoint-picker-wire -p endpoint-picker-engine -p endpoint-picker-workers -p endpoint-picker-wasm

# Programs in .tools/ come after the installed ones.
export PATH  := $(PATH):$(CURDIR)/.tools/bin

# The tests' tools are installed before anything is built, also with -j.
.NOTPARALLEL:

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18
	@echo
	@echo 'make run takes ENDPOINTS=10.0.0.1:8000,vllm-2:8000 (your model servers in place of three demo ones)'
	@echo 'FILTER=native (the native module in place of the wasm filter)'
	@echo 'and PORT=10000, ADMIN_PORT=9901, AGENT_PORT=9095 (where it listens on loopback).'

.PHONY: run
run: build ## Start demo model servers, the agent and Envoy with the filter; Ctrl-C stops them
	@$(target_dir)/debug/demo

.PHONY: example
example: ## Print the whole Envoy configuration of an example (NAME=two-pools FILTER=native), or without NAME the names of all
	@$(CARGO) run --quiet -p endpoint-picker-harness --bin example -- $(NAME)

.PHONY: test
test: test-tools test-unit test-independent ## Run all tests but those of test-kube, the end-to-end tests with both forms of the filter
	@$(MAKE) --no-print-directory test-e2e FILTER=wasm
	@$(MAKE) --no-print-directory test-e2e FILTER=native

.PHONY: test-unit
test-unit: test-tools tools ## Run the tests that need no Envoy
	$(CARGO) test --workspace $(addprefix --exclude ,metrics-agent $(test_packages))
	$(CARGO) test -p endpoint-picker-native --features loom --lib -- interleavings
	$(CARGO) test $(programs) --lib --test agent --test manifests --test parity

.PHONY: test-e2e
test-e2e: test-tools build $(FILTER)-trap ## Run the end-to-end tests in a real Envoy (FILTER=native; some of them: T=name)
	$(CARGO) test $(programs) --test e2e --test $(FILTER) -- $(T)

.PHONY: test-independent
test-independent: test-tools build wasm native ## Run the end-to-end tests that do not depend on the form of the filter
	$(CARGO) test $(programs) --test independent -- $(T)

.PHONY: test-kube
test-kube: kube-tools build wasm native ## Run the tests on a real API server with Envoy Gateway, which `make test` leaves out (some of them: T=name)
	@tools/crane
	@# Each test program runs in a network namespace of its own.
	$(CARGO) test --config 'target."cfg(unix)".runner = ["$(CURDIR)/tools/kube-namespace"]' $(programs) --test kube --test watches -- $(T)

.PHONY: test-envoys
test-envoys: test-tools build wasm native ## Run a short set of the end-to-end tests with each older Envoy that is supported
	@CARGO=$(CARGO) PROGRAMS="$(programs)" tools/envoys

.PHONY: test-dist
test-dist: test-tools build dist-native ## Pick with the native modules of dist/ in a real Envoy, that for aarch64 in QEMU
	@CARGO=$(CARGO) PROGRAMS="$(programs)" tools/test-dist

.PHONY: chaos
chaos: build $(if $(FLOW_CONTROL),native) ## Inject one fault after another under load (SECONDS=300 SEED=n PROXIES=2 FLOW_CONTROL=1); fails when a servable request is lost
	@$(if $(filter-out 1,$(PROXIES)),tools/debian redis-server)
	@$(target_dir)/debug/bench chaos --seconds $(or $(SECONDS),60) $(addprefix --seed ,$(SEED)) \
		$(addprefix --proxies ,$(PROXIES)) $(if $(FLOW_CONTROL),--flow-control)

.PHONY: soak
soak: build ## Run the same load for long (SECONDS=1830); fails when memory grows or logs flood
	@$(target_dir)/debug/bench soak $(addprefix --seconds ,$(SECONDS))

.PHONY: parity
parity: build ## Compare decisions with the EPP (Go builds it, or EPP=/path/to/epp), side by side in Envoy
	@epp=$$(tools/epp) && EPP=$$epp $(target_dir)/debug/bench parity

.PHONY: fuzz
fuzz: ## Fuzz everything that reads foreign bytes, each target for SECONDS=30
	@SECONDS_EACH=$(or $(SECONDS),30) tools/fuzz

.PHONY: test-wasm
test-wasm: tools ## Run the rules' tests on wasm32 in Node.js
	@tools/test-wasm

.PHONY: build
build: tools $(FILTER) ## Build the filter, the agent and the demo
	$(CARGO) build $(programs) --bins

.PHONY: wasm
wasm: tools ## Build the filter as target/endpoint_picker.wasm
	$(CARGO) build -p endpoint-picker-wasm --target wasm32-wasip1 --profile wasm
	@mkdir -p target
	@cmp -s $(filter_built) $(filter) || cp $(filter_built) $(filter)

.PHONY: native
native: ## Build the filter as a native module, target/libendpoint_picker.so
	@# Only as a cdylib: with a Rust library beside it cargo optimizes no further than each crate.
	$(CARGO) rustc -p endpoint-picker-native --lib --crate-type cdylib --profile native
	@mkdir -p target
	@$(call place_native,$(native))

.PHONY: native-trap
native-trap: ## Build the native module with a request that panics, for tests
	$(CARGO) rustc -p endpoint-picker-native --lib --crate-type cdylib --profile native --features trap
	@mkdir -p target
	@$(call place_native,$(panicking))

# Another file under the name: an Envoy that runs keeps the one that it has mapped.
place_native = cmp -s $(native_built) $(1) || { cp $(native_built) $(1).new && mv $(1).new $(1); }

.PHONY: dist
dist: wasm ## Build the files of a release into dist/: native modules and agents for x86-64 and aarch64, and the wasm module
	@tools/dist

.PHONY: dist-native
dist-native: tools ## Build only the native modules into dist/, and check what they need of an image and of Envoy
	@tools/dist native

.PHONY: native-sanitize
native-sanitize: ## Run the native module against a mock of Envoy under AddressSanitizer (x86-64)
	@# The sanitizer is in the stable toolchain, behind a flag that needs the variable. The doctests and benches are not built with it.
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address $(CARGO) test -p endpoint-picker-native --test module \
		--target x86_64-unknown-linux-gnu --target-dir $(target_dir)/sanitize

.PHONY: wasm-trap
wasm-trap: tools ## Build the filter with a request that traps it, for tests
	$(CARGO) build -p endpoint-picker-wasm --features trap --target wasm32-wasip1 --profile wasm
	@cmp -s $(filter_built) $(trapping) || cp $(filter_built) $(trapping)

.PHONY: wasm-alone
wasm-alone: tools ## Build the filter whose workers share nothing, to measure what sharing costs
	$(CARGO) build -p endpoint-picker-wasm --features alone --target wasm32-wasip1 --profile wasm
	@cmp -s $(filter_built) $(alone) || cp $(filter_built) $(alone)

.PHONY: lint
lint: tools ## Check the lock file, the format, clippy for host, wasm and fuzz targets, and the types of the page's scripts
	$(CARGO) metadata --locked --format-version 1 >/dev/null
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy $(in_filter) --target wasm32-wasip1 -- -D warnings
	@# The agent without its client of Kubernetes.
	$(CARGO) clippy -p metrics-agent --no-default-features -- -D warnings
	@# Clippy links nothing, so any path spares the build of libFuzzer.
	cp Cargo.lock fuzz/Cargo.lock
	CUSTOM_LIBFUZZER_PATH=none/libfuzzer.a $(CARGO) clippy --manifest-path fuzz/Cargo.toml --target-dir $(target_dir) -- -D warnings
	@tools/check-page

.PHONY: doc
doc: tools ## Build the documentation of all crates, private items included; warnings are errors
	RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' $(CARGO) doc --workspace --no-deps --document-private-items

.PHONY: msrv
msrv: ## Check the filter and the agent with the oldest supported Rust, which rustup installs
	@tools/msrv

.PHONY: deny
deny: ## Check the licences and sources of all packages, and that none is banned
	@tools/cargo-deny check licenses bans sources

.PHONY: advisories
advisories: ## Look up known vulnerabilities of all packages (fetches the database of advisories)
	@tools/cargo-deny check advisories

.PHONY: check-imports
check-imports: wasm ## Check the built filter's host calls against filter/wasm/capabilities.txt and envoy.yaml
	$(CARGO) test $(programs) --test wasm -- capabilities

.PHONY: check-manifests
check-manifests: ## Check the objects of Envoy Gateway and Istio in deploy/rendered against the definitions of these projects
	@tools/check-manifests

.PHONY: gen-deploy
gen-deploy: ## Render the chart into deploy/rendered, for an installation without Helm
	@tools/gen-deploy

.PHONY: check-deploy
check-deploy: ## Check the Helm chart, that deploy/rendered is current, and the Dockerfile; build the images where a builder is
	@tools/check-deploy

.PHONY: images
images: ## Build the images with docker, podman or buildah (REGISTRY=registry.example/inference: for both architectures, and push them)
	@tools/images

.PHONY: gen
gen: ## Generate the Rust code of the agent-to-filter schema
	$(CARGO) run -p endpoint-picker-wire-codegen

.PHONY: check-gen
check-gen: gen ## Check that the committed code of the schema is current
	git diff --exit-code -- filter/wire/src/gen

.PHONY: check-alerts
check-alerts: test-tools ## Check and test the rules of docs/operate/observability with promtool
	promtool check rules docs/operate/observability/alerts.yaml docs/operate/observability/epp-names.yaml
	promtool test rules docs/operate/observability/alerts-test.yaml docs/operate/observability/epp-names-test.yaml

.PHONY: bench
bench: tools wasm native ## Measure what the picker costs: proxies in turns, decision, agent, 20 minutes (WRITE=1 into docs; B=--help)
	@tools/debian wrk
	$(CARGO) build --release $(programs) --bins
	@$(target_dir)/release/bench cost $(if $(WRITE),--write) $(B)

.PHONY: bench-epp
bench-epp: tools wasm native ## Compare with the EPP and with round robin, 30 minutes (QUICK=1: 5; ONLY=cost: a part; WRITE=1 into docs)
	@tools/debian wrk
	@$(if $(filter flow-control,$(ONLY)),tools/kube-tools,:)
	$(CARGO) build --release $(programs) --bin metrics-agent --bin bench
	@epp=$$(tools/epp) && EPP=$$epp $(target_dir)/release/bench epp $(if $(QUICK),--quick) $(addprefix --only ,$(ONLY)) $(if $(WRITE),--write)

.PHONY: bench-proxies
bench-proxies: tools native ## Compare proxies that share with one, with such that do not and with the EPP, 33 minutes (QUICK=1: 10; ONLY=choices: a part; WRITE=1 into docs)
	@tools/debian wrk redis-server
	$(CARGO) build --release $(programs) --bin metrics-agent --bin bench
	@$(if $(filter-out choices,$(ONLY)),,epp=$$(tools/epp) && EPP=$$epp) $(target_dir)/release/bench proxies $(if $(QUICK),--quick) \
		$(addprefix --only ,$(ONLY)) $(if $(WRITE),--write) $(B)

.PHONY: bench-intervals
bench-intervals: tools wasm ## Compare scrape intervals of 50 to 500 ms and round robin, without an EPP (QUICK=1: shorter)
	$(CARGO) build --release $(programs) --bin metrics-agent --bin bench
	@$(target_dir)/release/bench epp --only intervals $(if $(QUICK),--quick)

.PHONY: bench-choosing
bench-choosing: tools native ## Compare the configurations of examples/choosing, 11 minutes (QUICK=1: 2; WRITE=1 into docs/reference/configurations.md)
	$(CARGO) build --release $(programs) --bin metrics-agent --bin bench
	@$(target_dir)/release/bench epp --only choosing $(if $(QUICK),--quick) $(if $(WRITE),--write)

.PHONY: tools
tools: ## Find or install the wasm targets, Envoy and func-e (into .tools/)
	@tools/setup

.PHONY: test-tools
test-tools: ## Find or install promtool, Starlette, Node.js and Chromium for the tests, or print at once what is missing
	@tools/test-setup

.PHONY: kube-tools
kube-tools: ## Install the API server, etcd, Envoy Gateway, kubectl and helm for test-kube (into .tools/kube; ten minutes, once)
	@tools/kube-tools

.PHONY: clean
clean: ## Remove everything built and the kept logs; .tools/ stays
	$(CARGO) clean
	rm -rf dist tests/logs
