# The files of a release, for a repository of clusterctl.

VERSION ?= v0.1.0
RELEASE_DIR ?= $(CAPK3S_CACHE)/release/$(VERSION)

.PHONY: release
release: ## Make the files of a release (VERSION=, IMAGE=, RELEASE_DIR=)
	go run ./hack/release/cmd/release --version $(VERSION) --image $(IMAGE) --out $(RELEASE_DIR)
	@echo "release $(VERSION) is in $(RELEASE_DIR)"
