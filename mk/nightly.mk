## Nightly: slow and rarely failing

# `make` targets in quotes, each with its variables. The last fetches a database from the internet, so without it all others have run.
nightly_steps := 'test-e2e FILTER=wasm' 'test-e2e FILTER=native' test-gateway test-extension test-istio conformance 'fuzz SECONDS=60' 'test-envoys ALL=1' test-dist test-release test-install check-reproducible test-upgrade 'soak WHOLE=1 SECONDS=600' test-wasm test-loom \
	trace-request native-sanitize msrv deny lint-rare check-studies 'chaos RESUME_STREAMS=1' \
	'simulate TABLE=regret BARS=1 SEEDS=1 REQUESTS=1500' 'simulate TABLE=traces BARS=1 SEEDS=1 REQUESTS=1500' \
	'parity CASES=50000' advisories

.PHONY: nightly
nightly: ## Run all of this group, once before an issue is closed, with the time of each step
	@tools/setup/nightly
	@.ci/run $(nightly_steps)

.PHONY: test-dist
test-dist: test-tools build dist ## Pick with the native modules of dist/ in a real Envoy, that for aarch64 in QEMU
	@tools/test/dist

.PHONY: test-release
test-release: ## Verify, publish, unpack, run and install the files of dist/, which `make dist` or `make release` has built
	@tools/test/release

.PHONY: check-reproducible
check-reproducible: tools ## Build a release twice in different folders and compare all bytes (FULL=1: optimized and for both architectures)
	@FULL='$(FULL)' tools/test/reproducible

.PHONY: test-upgrade
test-upgrade: gateway-tools tools wasm native ## Upgrade and roll back agent, module and Envoy, and the chart on a real API server, under load, with different formats between them
	$(build_programs) --bin metrics-agent --bin endpoint-picker-model-server
	@tools/test/upgrade
	$(test_kube) --test extension -- --ignored --nocapture upgrade::

.PHONY: test-install
test-install: ## Install the agent from source by the commands of README and docs/install, and run it
	@tools/test/install

.PHONY: mutations
mutations: ## Change one constant or order of the rules after another (tools/test/mutations.txt): the recorded cases of the EPP, the oracle or the cases of the rules must notice
	@tools/test/mutations

.PHONY: test-wasm
test-wasm: tools ## Run the rules' tests on wasm32 in Node.js
	@tools/test/wasm

.PHONY: test-loom
test-loom: ## Try the interleavings of the native module's locks
	$(CARGO) test -p endpoint-picker-native --features loom --lib -- interleavings

.PHONY: native-sanitize
native-sanitize: ## Run the native module against a mock of Envoy under AddressSanitizer (x86-64)
	@# The sanitizer is in the stable toolchain, behind a flag that needs the variable. The doctests and benches are not built with it.
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address $(CARGO) test -p endpoint-picker-native --test module \
		--target x86_64-unknown-linux-gnu --target-dir $(target_dir)/sanitize

.PHONY: msrv
msrv: ## Check the filter and the agent with the oldest supported Rust, which rustup installs
	@tools/check/msrv

.PHONY: deny
deny: ## Check the licences and sources of all packages, and that none is banned
	@tools/check/deny check licenses bans sources

.PHONY: lint-rare
lint-rare: tools ## Check with clippy the agent without its client of Kubernetes
	$(CARGO) clippy -p metrics-agent --no-default-features -- -D warnings
