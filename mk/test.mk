## Test

.PHONY: test
test: test-tools test-unit test-independent ## Run all tests but those of test-kube, the end-to-end tests with both forms of the filter
	@$(MAKE) --no-print-directory test-e2e FILTER=wasm
	@$(MAKE) --no-print-directory test-e2e FILTER=native

.PHONY: test-unit
test-unit: test-tools tools ## Run the tests that need no Envoy
	$(CARGO) test --workspace $(addprefix --exclude ,metrics-agent $(test_packages))
	$(CARGO) test -p endpoint-picker-native --features loom --lib -- interleavings
	$(CARGO) test $(programs) --lib --test agent --test manifests --test parity --test simulation

.PHONY: test-e2e
test-e2e: test-tools build $(FILTER)-trap ## Run the end-to-end tests in a real Envoy (FILTER=native; some of them: T=name)
	$(CARGO) test $(programs) --test e2e --test $(FILTER) -- $(T)

.PHONY: test-independent
test-independent: test-tools build wasm native ## Run the end-to-end tests that do not depend on the form of the filter
	$(CARGO) test $(programs) --test independent -- $(T)

.PHONY: test-kube
test-kube: kube-tools build wasm native ## Run the tests on a real API server with Envoy Gateway, which `make test` leaves out (some of them: T=name)
	@tools/kube/crane
	@# Each test program runs in a network namespace of its own.
	$(CARGO) test --config 'target."cfg(unix)".runner = ["$(CURDIR)/tools/kube/namespace"]' $(programs) --test kube --test watches -- $(T)

.PHONY: test-envoys
test-envoys: test-tools build wasm native ## Run a short set of the end-to-end tests with each older Envoy that is supported
	@CARGO=$(CARGO) PROGRAMS="$(programs)" tools/test/envoys

.PHONY: test-dist
test-dist: test-tools build dist-native ## Pick with the native modules of dist/ in a real Envoy, that for aarch64 in QEMU
	@CARGO=$(CARGO) PROGRAMS="$(programs)" tools/test/dist

.PHONY: test-wasm
test-wasm: tools ## Run the rules' tests on wasm32 in Node.js
	@tools/test/wasm

.PHONY: native-sanitize
native-sanitize: ## Run the native module against a mock of Envoy under AddressSanitizer (x86-64)
	@# The sanitizer is in the stable toolchain, behind a flag that needs the variable. The doctests and benches are not built with it.
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address $(CARGO) test -p endpoint-picker-native --test module \
		--target x86_64-unknown-linux-gnu --target-dir $(target_dir)/sanitize

.PHONY: fuzz
fuzz: ## Fuzz everything that reads foreign bytes, each target for SECONDS=30
	@SECONDS_EACH=$(or $(SECONDS),30) tools/test/fuzz
