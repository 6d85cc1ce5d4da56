# The programs that the tests and the demo run, and the manifests that go with
# them. Everything is built from Go modules that are pinned here and kept
# outside the checkout, so that a clean clone finds them again.
#
# To be included by the top Makefile, whose folder is the working directory.
# Targets: test-binaries, deps.

CAPK3S_CACHE ?= $${XDG_CACHE_HOME:-$$HOME/.cache}/capk3s
# Absolute from here on: rules and recipes need a path, not a shell expression.
override CAPK3S_CACHE := $(shell echo "$(CAPK3S_CACHE)")
export CAPK3S_CACHE

BINARIES := test/binaries
TEST_BIN := $(CAPK3S_CACHE)/bin
TEST_STAMPS := $(CAPK3S_CACHE)/stamps
TEST_MANIFESTS := $(CAPK3S_CACHE)/manifests

# $(call pinned,MODULE,FOLDER): the version that a nested module requires.
pinned = $(shell sed -n 's|^\(require \)\{0,1\}[[:space:]]*$(1) \(v[^ ]*\).*|\2|p' $(BINARIES)/$(2)/go.mod | head -n 1)
# $(call minor,vX.Y.Z): Y
minor = $(word 2,$(subst ., ,$(1)))
# $(call moduledir,MODULE,FOLDER): shell text that prints where the module's source is.
moduledir = $$(cd $(BINARIES)/$(2) && go mod download $(1) && go list -m -f '{{.Dir}}' $(1))

KUBERNETES_VERSION := $(call pinned,k8s.io/kubernetes,kubernetes)
ETCD_VERSION := $(call pinned,go.etcd.io/etcd/server/v3,etcd)
CAPI_VERSION := $(call pinned,sigs.k8s.io/cluster-api,capi)
# Velero has a module with code of this project, outside this folder.
VELERO_VERSION := $(call pinned,github.com/vmware-tanzu/velero,../velero)
CERT_MANAGER_VERSION := $(call pinned,github.com/cert-manager/cert-manager,certmanager)

# Without a version set at link time the server calls itself v0.0.0-master, and
# clusterctl refuses to work with it.
version_flags = -X $(1).gitVersion=$(2) -X $(1).gitMajor=1 -X $(1).gitMinor=$(call minor,$(2)) \
	-X $(1).gitTreeState=clean
KUBERNETES_LDFLAGS = $(call version_flags,k8s.io/component-base/version,$(KUBERNETES_VERSION)) \
	$(call version_flags,k8s.io/client-go/pkg/version,$(KUBERNETES_VERSION))
CAPI_LDFLAGS = $(call version_flags,sigs.k8s.io/cluster-api/version,$(CAPI_VERSION))

KUBERNETES_STAMP := $(TEST_STAMPS)/kubernetes-$(KUBERNETES_VERSION)
ETCD_STAMP := $(TEST_STAMPS)/etcd-$(ETCD_VERSION)
CAPI_STAMP := $(TEST_STAMPS)/cluster-api-$(CAPI_VERSION)
CAPI_COMPONENTS := $(TEST_MANIFESTS)/cluster-api/$(CAPI_VERSION)/core-components.yaml
VELERO_STAMP := $(TEST_STAMPS)/velero-$(VELERO_VERSION)
VELERO_CRDS := $(TEST_MANIFESTS)/velero/$(VELERO_VERSION)/crds.yaml
CERT_MANAGER_CRDS := $(TEST_MANIFESTS)/cert-manager/$(CERT_MANAGER_VERSION)/crds.yaml

# $(call built,NAME-PREFIX,STAMP): leaves this version's stamp alone in its family.
built = mkdir -p $(TEST_STAMPS) && rm -f $(TEST_STAMPS)/$(1)-v* && touch $(2)

# KUBEBUILDER_ASSETS is a folder with some of these already built; only what it
# lacks is built here.
missing_asset = $(if $(wildcard $(KUBEBUILDER_ASSETS)/$(1)),,$(1))
ifeq ($(KUBEBUILDER_ASSETS),)
KUBERNETES_PROGRAMS := kube-apiserver kube-controller-manager kubectl
ETCD_PROGRAMS := etcd
else
KUBERNETES_PROGRAMS := $(strip $(foreach p,kube-apiserver kube-controller-manager kubectl,$(call missing_asset,$(p))))
ETCD_PROGRAMS := $(call missing_asset,etcd)
endif
KUBECTL := $(if $(filter kubectl,$(KUBERNETES_PROGRAMS)),$(TEST_BIN),$(KUBEBUILDER_ASSETS))/kubectl

.PHONY: test-binaries
test-binaries: $(if $(KUBERNETES_PROGRAMS),$(KUBERNETES_STAMP)) $(if $(ETCD_PROGRAMS),$(ETCD_STAMP))
test-binaries: $(CAPI_STAMP) $(CAPI_COMPONENTS) $(CERT_MANAGER_CRDS) $(VELERO_STAMP) $(VELERO_CRDS) test-binaries-repo ## Build the programs that tests and demo run (cached outside the checkout)

# Of this repository: small, and left to the Go build cache to skip.
.PHONY: test-binaries-repo
test-binaries-repo:
	@mkdir -p $(TEST_BIN)
	cd test/k3s && CGO_ENABLED=0 go build -o $(TEST_BIN)/k3s-emulator ./cmd/k3s-emulator
	go build -o $(TEST_BIN)/ ./test/sandbox/cmd/sandbox-manager ./test/sandbox/cmd/sandbox-machine
	go build -o $(TEST_BIN)/capk3s-manager .
	cd test/velero && go build -ldflags '-s -w' -o $(TEST_BIN)/velero-plugins/ ./cmd/velero-plugin-folder

# A cold build takes about 24 CPU minutes, most of it the API server.
$(KUBERNETES_STAMP):
	@echo "building Kubernetes $(KUBERNETES_VERSION); the first time this takes 10 to 25 minutes"
	@mkdir -p $(TEST_BIN)
	cd $(BINARIES)/kubernetes && go build -ldflags '$(KUBERNETES_LDFLAGS)' -o $(TEST_BIN)/ \
		$(KUBERNETES_PROGRAMS:%=k8s.io/kubernetes/cmd/%)
	@$(call built,kubernetes,$@)

$(ETCD_STAMP):
	@mkdir -p $(TEST_BIN)
	cd $(BINARIES)/etcd && go build -o $(TEST_BIN)/etcd go.etcd.io/etcd/server/v3
	@$(call built,etcd,$@)

$(CAPI_STAMP):
	@mkdir -p $(TEST_BIN)
	cd $(BINARIES)/capi && go build -ldflags '$(CAPI_LDFLAGS)' -o $(TEST_BIN)/cluster-api-core sigs.k8s.io/cluster-api/core
	cd $(BINARIES)/capi && go build -ldflags '$(CAPI_LDFLAGS)' -o $(TEST_BIN)/clusterctl sigs.k8s.io/cluster-api/cmd/clusterctl
	@$(call built,cluster-api,$@)

# The layout is that of a clusterctl local repository.
$(CAPI_COMPONENTS): $(if $(filter kubectl,$(KUBERNETES_PROGRAMS)),$(KUBERNETES_STAMP))
	@mkdir -p $(@D)
	@source=$(call moduledir,sigs.k8s.io/cluster-api,capi) && work=$$(mktemp -d) && \
		cp -r $$source/core/config $$work/ && chmod -R u+w $$work && \
		cp $$source/metadata.yaml $(@D)/metadata.yaml && chmod u+w $(@D)/metadata.yaml && \
		$(KUBECTL) kustomize $$work/config/default > $@.tmp && mv $@.tmp $@; \
		status=$$?; rm -rf $$work; exit $$status

$(CERT_MANAGER_CRDS):
	@mkdir -p $(@D)
	@source=$(call moduledir,github.com/cert-manager/cert-manager,certmanager) && \
		for crd in $$source/deploy/crds/*.yaml; do echo ---; cat $$crd; done > $@.tmp && mv $@.tmp $@

# A cold build takes about 12 CPU minutes, most of it clients of clouds. What it
# compiles serves the plugin's build and go vet too, so that no flag may differ
# that the compiler sees.
$(VELERO_STAMP):
	@mkdir -p $(TEST_BIN)
	cd $(BINARIES)/../velero && go build -ldflags '-s -w' -o $(TEST_BIN)/velero github.com/vmware-tanzu/velero/cmd/velero
	@$(call built,velero,$@)

$(VELERO_CRDS):
	@mkdir -p $(@D)
	@source=$(call moduledir,github.com/vmware-tanzu/velero,../velero) && \
		for crd in $$source/config/crd/v1/bases/*.yaml $$source/config/crd/v2alpha1/bases/*.yaml; do echo ---; cat $$crd; done > $@.tmp && mv $@.tmp $@

.PHONY: deps
deps: ## Check for the system programs that the world needs; install them with apt when root
	@$(BINARIES)/deps.sh
