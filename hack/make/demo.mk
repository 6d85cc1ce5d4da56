# The guided tour of the operator in the test world.

.PHONY: demo
demo: deps test-binaries ## Found, scale and delete a K3s cluster (KEEP=1 leaves it running, K3S_BINARY= uses a real K3s)
	@KEEP=$(KEEP) K3S_BINARY=$(K3S_BINARY) go run ./test/demo

.PHONY: demo-shell
demo-shell: ## Open a shell with kubectl and clusterctl in the world of a demo that was left running
	@go run ./test/demo shell

.PHONY: demo-down
demo-down: ## End a demo that was left running
	@go run ./test/demo down
