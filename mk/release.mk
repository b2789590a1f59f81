## Release

.PHONY: dist
dist: wasm ## Build the files of a release into dist/: native modules and agents for x86-64 and aarch64, and the wasm module
	@tools/release/dist

.PHONY: dist-native
dist-native: tools ## Build only the native modules into dist/, and check what they need of an image and of Envoy
	@tools/release/dist native

.PHONY: images
images: ## Build the images with docker, podman or buildah (REGISTRY=registry.example/inference: for both architectures, and push them)
	@tools/release/images

.PHONY: gen-deploy
gen-deploy: ## Render the chart into deploy/rendered, for an installation without Helm
	@tools/release/gen-deploy
