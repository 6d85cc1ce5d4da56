# Checks and tests.

# Go modules besides the root's that have code of this project.
NESTED_MODULES := test/k3s test/velero test/peer
# Build tags of their tests.
NESTED_TAGS := conformance,e2e
# Packages are tested two at a time: many start a kube-apiserver. The target vet has vetted them.
GO_TEST := go test -vet=off -p 2 -timeout 30m $(GO_TEST_FLAGS)

# Without cgo, kine in test/k3s has SQLite in pure Go, and no C compiler is asked for. The race detector needs cgo.
NESTED_CGO := CGO_ENABLED=$(if $(findstring -race,$(GO_TEST_FLAGS)),1,0)

# $(call each_module,COMMAND): runs the command in every nested module, stops at the first failure.
each_module = @for module in $(NESTED_MODULES); do \
	(cd $$module && export $(NESTED_CGO) && echo "in $$module: $(1)" && $(1)) || exit 1; done

# One after the other, what is quickest to fail first: each of them has work for two cores.
.PHONY: test
test: generate-check deps test-binaries ## Run every check and test
	@$(MAKE) --jobs=1 vet lint test-unit conformance test-e2e

.PHONY: vet
vet: ## Run go vet on every module
	go vet ./...
	go vet -tags e2e ./test/...
	$(call each_module,go vet -tags $(NESTED_TAGS) ./...)

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run golangci-lint on every module
	$(GOLANGCI_LINT) run --allow-serial-runners --build-tags e2e ./...
	$(call each_module,$(GOLANGCI_LINT) run --allow-serial-runners --build-tags $(NESTED_TAGS) ./...)

# The fragment of the binaries decides at parse time what to build; from here on
# the tests are told where it all is.
test-unit test-e2e test-peer chaos conformance bench: export KUBEBUILDER_ASSETS := $(or $(KUBEBUILDER_ASSETS),$(BIN))

# Dozens of kube-apiservers start in the tests, and memory is cheaper than their time.
test-unit test-e2e test-peer chaos conformance: export GOGC ?= 400

# How much the tests tried. What a package that passes prints, go test doesn't show; one that didn't run again, since
# nothing changed, has left it there.
test-unit test-e2e: export CAPK3S_TOTALS = $(CAPK3S_CACHE)/totals/$@
show_totals = @cat $(CAPK3S_CACHE)/totals/$@/* || true

.PHONY: test-unit
test-unit: deps test-binaries ## Run the tests of all packages, those against a real kube-apiserver included
	$(GO_TEST) ./...
	$(call each_module,$(GO_TEST) ./...)
	$(show_totals)

GO_TEST_E2E := go test -vet=off -tags e2e

# Of what the tests run or apply, which go test doesn't see. A run that passed isn't repeated while that, and the tests,
# are the same; GO_TEST_FLAGS=-count=1 repeats it.
E2E_INPUTS = $(BIN) $(KUBEBUILDER_ASSETS) $(CAPK3S_CACHE)/manifests config test/sandbox/config metadata.yaml
E2E_CHECKSUM = $$(find $(E2E_INPUTS) -type f | sort -u | xargs sha256sum | sha256sum)

.PHONY: test-e2e
test-e2e: deps test-binaries ## Run the end-to-end tests in the test world
	E2E_CHECKSUM="$(E2E_CHECKSUM)" $(GO_TEST_E2E) -timeout 60m -parallel 3 $(GO_TEST_FLAGS) ./test/e2e/...
	$(show_totals)

SPECS ?= 50

.PHONY: property
property: deps ## Boot random bootstrap data and compare each byte, and say how much it was (SPECS=50)
	PROPERTY_SPECS=$(SPECS) go test -count=1 -v -timeout 0 -run '^TestProperty_' $(GO_TEST_FLAGS) ./bootstrap/internal/...

# Empty: all of them.
FOCUS ?=

# Not a part of "test": it takes as long as all end-to-end tests, which have what matters most of it.
.PHONY: test-peer
test-peer: deps test-binaries ## Run Cluster API's own specs in the test world (FOCUS='QuickStart$$' for some of them)
	cd test/peer && $(GO_TEST_E2E) -count=1 -timeout 0 -v $(GO_TEST_FLAGS) . -ginkgo.focus='$(FOCUS)'

OPS ?= 20
SEED ?= 0

.PHONY: chaos
chaos: deps test-binaries ## Have random operations befall a cluster (OPS=20 SEED=0, which is a random one)
	$(GO_TEST_E2E) -count=1 -timeout 0 -v -run '^TestChaos_' $(GO_TEST_FLAGS) ./test/e2e/... -chaos.operations $(OPS) -chaos.seed $(SEED)

# Empty: the emulator.
K3S_BINARY ?=
override K3S_BINARY := $(abspath $(K3S_BINARY))

# As E2E_CHECKSUM.
K3S_CHECKSUM = $$(cat $(or $(K3S_BINARY),$(BIN)/k3s-emulator $(KUBEBUILDER_ASSETS)/kube-apiserver) | sha256sum)

.PHONY: conformance
conformance: deps test-binaries ## Compare the K3s emulator, or K3S_BINARY=/path/to/k3s, with what K3s does
	cd test/k3s && $(NESTED_CGO) K3S_BINARY=$(K3S_BINARY) K3S_CHECKSUM="$(K3S_CHECKSUM)" go test -tags conformance -parallel 3 -timeout 30m $(GO_TEST_FLAGS) ./conformance/...

.PHONY: bench
bench: deps test-binaries ## Print sizes of bootstrap data, requests of an idle cluster, memory and delays
	go test -run '^$$' -bench . -benchtime 1x ./bootstrap/...
	go test -tags e2e -run '^$$' -bench . -benchtime 1x -timeout 45m ./test/e2e/...
