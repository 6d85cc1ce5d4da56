# Programs that generate and check, pinned in modules of their own so that the
# operator's module graph doesn't carry them.

CONTROLLER_GEN := $(BIN)/controller-gen
CRD_REF_DOCS := $(BIN)/crd-ref-docs
GOLANGCI_LINT := $(BIN)/golangci-lint

$(CONTROLLER_GEN): hack/tools/go.mod
	cd hack/tools && go build -o $@ sigs.k8s.io/controller-tools/cmd/controller-gen
	@touch $@

$(CRD_REF_DOCS): hack/tools/go.mod
	cd hack/tools && go build -o $@ github.com/elastic/crd-ref-docs
	@touch $@

$(GOLANGCI_LINT): hack/lint/go.mod
	@echo "building golangci-lint; the first time this takes some minutes"
	cd hack/lint && go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@
