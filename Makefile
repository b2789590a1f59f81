# The tasks of the project: `make` alone lists them. Each group is a file of mk/.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

CARGO        ?= cargo
target_dir   := $(or $(CARGO_TARGET_DIR),target)
# Always the features of the whole workspace, so that cargo builds shared dependencies once. Only what a target names is built.
programs     := --workspace
# Builds programs. With the examples, of which there are none: so packages have the features that tests need too, and cargo builds none twice.
build_programs = $(CARGO) build $(programs) --examples
# The form of the filter that is run, tested and measured.
FILTER       ?= wasm
ifeq ($(filter wasm native,$(FILTER)),)
$(error FILTER is "$(FILTER)"; must be wasm or native)
endif
export FILTER

# Programs in .tools/ come after the installed ones.
export PATH  := $(PATH):$(CURDIR)/.tools/bin

# The tests' tools are installed before anything is built, also with -j.
.NOTPARALLEL:

.PHONY: help
help: ## List the targets
	@sed -n 's/^## \(.*\)/\n\1/p; s/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 19
	@echo
	@echo 'make run takes ENDPOINTS=10.0.0.1:8000,vllm-2:8000 (your model servers in place of three demo ones)'
	@echo 'FILTER=native (the native module in place of the wasm filter), RULES=epp (or a file with an EndpointPickerConfig; expected-latency without it)'
	@echo 'AGENT=off (no agent: the filter lists the servers, which nothing scrapes)'
	@echo 'and PORT=10000, ADMIN_PORT=9901, AGENT_PORT=9095 (where it listens on loopback).'

.PHONY: run
run: build ## Start demo model servers, the agent and Envoy with the filter; Ctrl-C stops them
	@$(target_dir)/debug/demo

.PHONY: example
example: ## Print the whole Envoy configuration of an example (NAME=two-pools FILTER=native), or without NAME the names of all
	@$(CARGO) build --quiet $(programs) --bin example
	@$(target_dir)/debug/example $(NAME)

include mk/test.mk mk/build.mk mk/check.mk mk/nightly.mk mk/release.mk mk/bench.mk
