## Test

# Tests of all packages but e2e and kube, whose tests start Envoy or an API server: files and folders of `tests`.
unit_tests := $(filter-out tests/e2e/% tests/kube/%,$(wildcard $(foreach depth,* */* */*/*,$(depth)/tests/*.rs $(depth)/tests/*/main.rs)))
unit_tests := $(sort $(basename $(notdir $(patsubst %/main.rs,%,$(unit_tests)))))

# Runs a program of tests in a network namespace of its own, for tests on a Kubernetes cluster.
test_kube = $(CARGO) test --config 'target."cfg(unix)".runner = ["$(CURDIR)/tools/kube/namespace"]' $(programs)

.PHONY: test
test: test-tools ## Run all tests but those of test-kube and nightly, with the time of each step
	@.ci/run test-unit test-independent 'test-e2e FILTER=native' 'test-shell FILTER=wasm'

.PHONY: test-unit
test-unit: test-tools tools ## Run the tests that need no Envoy
	@# A test that waits leaves a processor free.
	RUST_TEST_THREADS=$$(($$(nproc) * 3)) $(CARGO) test $(programs) --lib $(addprefix --test ,$(unit_tests))
	$(CARGO) test $(programs) --doc

.PHONY: test-e2e
test-e2e: test-tools build bench-program $(FILTER)-trap ## Run the end-to-end tests in a real Envoy (FILTER=native; some of them: T=name)
	$(build_programs) --bin endpoint-picker-model-server
	@tools/test/e2e shell features $(FILTER)

.PHONY: test-shell
test-shell: test-tools build bench-program $(FILTER)-trap ## Run the end-to-end tests of what each form of the filter does by itself (FILTER=native, T=name)
	@tools/test/e2e shell $(FILTER)

.PHONY: test-independent
test-independent: test-tools build wasm native ## Run the end-to-end tests that do not depend on the form of the filter (T=name)
	@tools/test/e2e independent

.PHONY: test-kube
test-kube: kube-tools build wasm native ## Run the tests on a real API server, which `make test` leaves out (some of them: PROGRAM=chart or PROGRAM=watches, T=name)
	$(build_programs) --bin endpoint-picker-model-server
	@# Each test program runs in a network namespace of its own, and its tests mostly wait.
	RUST_TEST_THREADS=6 $(test_kube) $(addprefix --test ,$(or $(PROGRAM),chart watches)) -- $(T)

.PHONY: test-gateway
test-gateway: gateway-tools build wasm native ## Run the tests of the chart with Envoy Gateway on a real API server (T=name)
	$(build_programs) --bin endpoint-picker-model-server
	RUST_TEST_THREADS=6 $(test_kube) --test envoy_gateway --test away -- $(T)

.PHONY: conformance
conformance: gateway-tools conformance-tools tools native ## Run the conformance suite of the Gateway API Inference Extension against Envoy Gateway with the chart (some of its tests: T='A|B')
	$(build_programs) --bin metrics-agent --bin endpoint-picker-model-server
	CONFORMANCE_TESTS='$(T)' $(test_kube) --test conformance -- --nocapture

.PHONY: test-extension
test-extension: gateway-tools conformance-tools ai-gateway-tools kserve-tools tools native ## Run the tests of routes to InferencePools on a real API server with Envoy Gateway and the chart (T=name)
	$(build_programs) --bin metrics-agent --bin endpoint-picker-model-server
	$(test_kube) --test extension -- $(T)

.PHONY: test-istio
test-istio: kube-tools istio-tools tools wasm native ## Run the tests on a real API server with Istio's control plane and the chart (T=name)
	$(build_programs) --bin metrics-agent --bin endpoint-picker-model-server
	$(test_kube) --test istio -- $(T)

.PHONY: test-envoys
test-envoys: test-tools build wasm native ## Run a short set of the end-to-end tests with the oldest Envoy of the wasm filter and each older one of the native module (ALL=1: of both); say which newer one is installable
	@tools/test/envoys $(if $(ALL),all)

.PHONY: fuzz-build
fuzz-build: ## Build the fuzz targets only
	@tools/test/fuzz build

.PHONY: fuzz
fuzz: ## Fuzz everything that reads foreign bytes, each target for SECONDS=10
	@SECONDS_EACH=$(or $(SECONDS),10) tools/test/fuzz
