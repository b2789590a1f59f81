## Check

in_filter    := -p endpoint-picker -p endpoint-picker-wire -p endpoint-picker-engine -p endpoint-picker-workers -p endpoint-picker-wasm

.PHONY: lint
lint: tools ## Check the lock file, the format, words, deadlines of tests, clippy for host and wasm, and the types of the page's scripts
	@tools/check/packages
	$(CARGO) fmt --all --check
	@tools/check/words
	@tools/check/deadlines
	@# Clippy links nothing, so any path spares the build of libFuzzer.
	CUSTOM_LIBFUZZER_PATH=none/libfuzzer.a $(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy $(in_filter) --target wasm32-wasip1 -- -D warnings
	@# Of the whole workspace, so that all but the native module is checked already.
	$(CARGO) clippy --workspace --features endpoint-picker-native/loom --lib --tests -- -D warnings
	@tools/check/page

.PHONY: doc
doc: tools ## Build the documentation of all crates, private items included; warnings are errors
	@tools/check/doc

.PHONY: advisories
advisories: ## Look up known vulnerabilities of all packages (fetches the database of advisories)
	@tools/check/deny check advisories

.PHONY: check-gen
check-gen: gen ## Check that the committed code of the schema is current
	git diff --exit-code -- filter/wire/src/gen metrics-agent/gateway/src/gen

.PHONY: check-epp
check-epp: ## Print what the agent says of the EPP's public configurations and types, and compare it with docs/reference/configurations.md
	$(CARGO) test $(programs) --test manifests -- public:: --nocapture --test-threads 1

.PHONY: epp-drift
epp-drift: ## Compare the names and defaults in a checkout of llm-d-router with the catalogue (SOURCE=/path/to/llm-d-router; OLDER=: with those of an older checkout, too)
	$(build_programs) --bin metrics-agent
	@tools/check/epp-drift $(target_dir)/debug/metrics-agent $(SOURCE) $(OLDER)

.PHONY: check-imports
check-imports: wasm ## Check the built filter's host calls against filter/wasm/capabilities.txt and envoy.yaml
	$(CARGO) test $(programs) --test wasm -- capabilities

.PHONY: check-module
check-module: tools native ## Check what the native module exports, and that Envoy exports what it expects
	@tools/check/module $(native)

.PHONY: check-manifests
check-manifests: ## Check the objects of Envoy Gateway and Istio in deploy/rendered against the definitions of these projects
	@tools/check/manifests

.PHONY: check-deploy
check-deploy: ## Check the Helm chart, that deploy/rendered is current, and the Dockerfile; build the images where a builder is
	@tools/check/deploy

.PHONY: check-alerts
check-alerts: test-tools ## Check and test the rules of docs/operate/observability with promtool
	promtool check rules docs/operate/observability/alerts.yaml docs/operate/observability/epp-names.yaml
	promtool test rules docs/operate/observability/alerts-test.yaml docs/operate/observability/epp-names-test.yaml
