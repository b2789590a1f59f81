## Release

.PHONY: release
release: tools ## Build and sign the files of a release of the checked out tag into dist/ (KEY=/path/to/minisign.key; ARCHITECTURES=x86_64: fewer)
	@KEY='$(KEY)' ARCHITECTURES='$(ARCHITECTURES)' tools/release/sign

.PHONY: verify-release
verify-release: ## Verify the files of a release in FOLDER=dist with the public key alone (PUBLIC_KEY=minisign.pub)
	@tools/release/verify '$(or $(PUBLIC_KEY),minisign.pub)' '$(or $(FOLDER),dist)'

.PHONY: publish
publish: ## Push the images and the chart of a verified release (REGISTRY=registry.example/inference PUBLIC_KEY=minisign.pub FOLDER=dist)
	@REGISTRY='$(REGISTRY)' PUBLIC_KEY='$(or $(PUBLIC_KEY),minisign.pub)' FOLDER='$(or $(FOLDER),dist)' tools/release/publish

.PHONY: dist
dist: tools ## Build the files of a release into dist/ without a signature, from any commit (ARCHITECTURES=x86_64: fewer; PROFILE=FILE: the profile of an earlier build)
	@ARCHITECTURES='$(ARCHITECTURES)' PROFILE='$(PROFILE)' tools/release/dist

.PHONY: dist-native
dist-native: tools ## Build only the native modules into dist/, and check what they need of an image and of Envoy (PROFILE as for dist)
	@ARCHITECTURES='$(ARCHITECTURES)' PROFILE='$(PROFILE)' tools/release/dist native

.PHONY: images
images: ## Build the images with docker, podman or buildah (REGISTRY=registry.example/inference: for both architectures, and push them; PROFILE=dist/….profdata: the release's)
	@PROFILE='$(PROFILE)' tools/release/images

.PHONY: gen-deploy
gen-deploy: ## Render the chart into deploy/rendered, for an installation without Helm
	@tools/release/gen-deploy
