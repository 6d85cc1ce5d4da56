# Checks and tests.

# Go modules besides the root's that have tests of their own.
NESTED_MODULES := $(patsubst %/go.mod,%,$(wildcard test/k3s/go.mod))
GO_TEST := go test -p 2 -timeout 20m $(GO_TEST_FLAGS)

.PHONY: test
test: generate-check vet lint test-unit ## Run every check and test

.PHONY: vet
vet: ## Run go vet on every module
	go vet ./...
	go vet -tags e2e ./test/...
	@for module in $(NESTED_MODULES); do (cd $$module && go vet ./...) || exit 1; done

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run golangci-lint on every module
	$(GOLANGCI_LINT) run --build-tags e2e ./...
	@for module in $(NESTED_MODULES); do (cd $$module && $(GOLANGCI_LINT) run ./...) || exit 1; done

# The fragment of the binaries decides at parse time what to build; from here on
# the tests are told where it all is.
.PHONY: test-unit
test-unit: export KUBEBUILDER_ASSETS := $(or $(KUBEBUILDER_ASSETS),$(BIN))
test-unit: test-apiserver ## Run the unit tests and those against a real kube-apiserver
	$(GO_TEST) ./...
	@for module in $(NESTED_MODULES); do (cd $$module && $(GO_TEST) ./...) || exit 1; done

.PHONY: test-apiserver
test-apiserver: $(if $(KUBERNETES_PROGRAMS),$(KUBERNETES_STAMP)) $(if $(ETCD_PROGRAMS),$(ETCD_STAMP))
