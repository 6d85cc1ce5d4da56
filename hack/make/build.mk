# The operator and its image.

IMAGE ?= ghcr.io/capk3s/capk3s
TAG ?= dev
PLATFORMS ?= linux/amd64,linux/arm64

.PHONY: build
build: ## Build the operator into the cache
	@mkdir -p $(BIN)
	CGO_ENABLED=0 go build -o $(BIN)/capk3s-manager .

.PHONY: docker-build
docker-build: ## Build the image for all platforms (IMAGE=, TAG=, PLATFORMS=, DOCKER_ARGS=--push)
	docker buildx build --platform $(PLATFORMS) --tag $(IMAGE):$(TAG) $(DOCKER_ARGS) .
