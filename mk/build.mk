## Build

# The modules that cargo builds, and the paths at which envoy.yaml and the tests expect them.
filter_built := $(target_dir)/wasm32-wasip1/wasm/endpoint_picker_wasm.wasm
filter       := target/endpoint_picker.wasm
native       := target/libendpoint_picker.so
ifdef UNOPTIMIZED
# As cargo builds it for its own test `module`, with the packages of all tests. To optimize it takes 110 packages and seven minutes of the processor.
native_built := $(target_dir)/debug/deps/libendpoint_picker_native.so
build_native  = $(CARGO) build $(programs) --test module
else
native_built := $(target_dir)/native/libendpoint_picker_native.so
# Only as a cdylib: with a Rust library beside it cargo optimizes no further than each crate.
build_native  = $(CARGO) rustc -p endpoint-picker-native --lib --crate-type cdylib --profile native
endif
# Variants for tests, with a request that traps its VM or panics.
trapping     := target/endpoint_picker_trap.wasm
panicking    := target/libendpoint_picker_trap.so
# Another file under the name: an Envoy that runs keeps the one that it has mapped.
place_native  = cmp -s $(native_built) $(1) || { cp $(native_built) $(1).new && mv $(1).new $(1); }

.PHONY: build
build: tools $(FILTER) ## Build the filter, the agent and the demo
	$(build_programs) --bin metrics-agent --bin demo

.PHONY: wasm
wasm: tools ## Build the filter as target/endpoint_picker.wasm
	$(CARGO) build -p endpoint-picker-wasm --target wasm32-wasip1 --profile wasm
	@mkdir -p target
	@cmp -s $(filter_built) $(filter) || cp $(filter_built) $(filter)

.PHONY: native
native: ## Build the filter as a native module, target/libendpoint_picker.so
	$(build_native)
	@mkdir -p target
	@$(call place_native,$(native))

.PHONY: native-trap
native-trap: ## Build the native module with a request that panics, for tests
	$(build_native) --features endpoint-picker-native/trap
	@mkdir -p target
	@$(call place_native,$(panicking))

.PHONY: wasm-trap
wasm-trap: tools ## Build the filter with a request that traps it, for tests
	$(CARGO) build -p endpoint-picker-wasm --features trap --target wasm32-wasip1 --profile wasm
	@cmp -s $(filter_built) $(trapping) || cp $(filter_built) $(trapping)

.PHONY: gen
gen: ## Generate the Rust code of the agent-to-filter schema
	$(build_programs) --bin endpoint-picker-wire-codegen
	@$(target_dir)/debug/endpoint-picker-wire-codegen

.PHONY: tools
tools: ## Find or install the wasm targets, Envoy and func-e (into .tools/)
	@tools/setup/build

.PHONY: test-tools
test-tools: ## Find or install promtool, Starlette, Node.js and Chromium for the tests, or print at once what is missing
	@tools/setup/tests

.PHONY: kube-tools
kube-tools: ## Install the API server, etcd, kubectl and helm for test-kube (into .tools/; five minutes, once)
	@tools/kube/setup cluster

.PHONY: gateway-tools
gateway-tools: ## The same with Envoy Gateway and crane for test-gateway (ten minutes, once)
	@tools/kube/setup gateway
	@tools/kube/crane

.PHONY: conformance-tools
conformance-tools: ## Build the conformance suite and the programs of its pods (into .tools/conformance; three minutes of one core, once)
	@tools/conformance/setup

.PHONY: ai-gateway-tools
ai-gateway-tools: ## Build Envoy AI Gateway for test-extension (into .tools/ai-gateway; ten minutes of one core, once)
	@tools/kube/ai-gateway

.PHONY: kserve-tools
kserve-tools: ## Build KServe's controller of LLMInferenceServices for test-extension (into .tools/kserve; ten minutes of one core, once)
	@tools/kube/kserve

.PHONY: istio-tools
istio-tools: ## Build Istio's control plane for test-istio (into .tools/istio; a quarter of an hour of one core, once)
	@tools/kube/istio

.PHONY: clean
clean: ## Remove everything built and the kept logs; .tools/ stays
	$(CARGO) clean
	rm -rf dist tests/logs
