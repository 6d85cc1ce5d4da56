# Code, manifests and the API reference made from the Go types and their markers.

API := paths=./bootstrap/api/... paths=./controlplane/api/...
SANDBOX_API := paths=./test/sandbox/api/...

.PHONY: generate
generate: $(CONTROLLER_GEN) $(CRD_REF_DOCS) ## Generate deepcopy code, CRDs, RBAC roles and the API reference
	$(CONTROLLER_GEN) object $(API) $(SANDBOX_API)
	$(CONTROLLER_GEN) crd $(API) output:crd:artifacts:config=config/crd/bases
	$(CONTROLLER_GEN) crd $(SANDBOX_API) output:crd:artifacts:config=test/sandbox/config/crd/bases
	go run ./hack/crdgen config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=system-manager paths=./bootstrap/controllers/... \
		output:rbac:artifacts:config=config/rbac/bootstrap
	$(CONTROLLER_GEN) rbac:roleName=system-manager paths=./controlplane/controllers/... \
		output:rbac:artifacts:config=config/rbac/controlplane
	$(call api_reference,bootstrap,bootstrap)
	$(call api_reference,controlplane,control-plane)

# $(call api_reference,FOLDER,NAME): describes the API in a folder.
api_reference = $(CRD_REF_DOCS) --config=hack/tools/crd-ref-docs.yaml --renderer=markdown --log-level=ERROR \
	--source-path=./$(1)/api/v1beta3 --output-path=docs/api/$(2).md

.PHONY: generate-check
generate-check: $(CONTROLLER_GEN) $(CRD_REF_DOCS) ## Fail if generated files differ from what generate makes
	@hack/make/generate-check.sh
