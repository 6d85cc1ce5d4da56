# The guided tour of the operator in the test world.

# A program of its own rather than "go run", which would leave it running when
# it is killed itself.
DEMO := $(BIN)/capk3s-demo

.PHONY: demo
demo: deps test-binaries ## Found, scale and delete a K3s cluster (KEEP=1 leaves it running, K3S_BINARY= uses a real K3s)
	@KEEP=$(KEEP) K3S_BINARY=$(K3S_BINARY) exec $(DEMO)

.PHONY: demo-shell
demo-shell: demo-program ## Open a shell with kubectl and clusterctl in the world of a demo that was left running
	@exec $(DEMO) shell

.PHONY: demo-down
demo-down: demo-program ## End a demo that was left running
	@exec $(DEMO) down

demo: demo-program
.PHONY: demo-program
demo-program:
	@mkdir -p $(BIN)
	@go build -o $(DEMO) ./test/demo
