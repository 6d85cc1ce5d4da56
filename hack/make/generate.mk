# Code and manifests made from the Go types and their markers.

API := paths=./bootstrap/api/... paths=./controlplane/api/...
SANDBOX_API := paths=./test/sandbox/api/...

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Generate deepcopy code, CRDs and RBAC roles
	$(CONTROLLER_GEN) object $(API) $(SANDBOX_API)
	$(CONTROLLER_GEN) crd $(API) output:crd:artifacts:config=config/crd/bases
	$(CONTROLLER_GEN) crd $(SANDBOX_API) output:crd:artifacts:config=test/sandbox/config/crd/bases
	go run ./hack/crdgen config/crd/bases
	$(CONTROLLER_GEN) rbac:roleName=system-manager paths=./bootstrap/controllers/... \
		output:rbac:artifacts:config=config/rbac/bootstrap
	$(CONTROLLER_GEN) rbac:roleName=system-manager paths=./controlplane/controllers/... \
		output:rbac:artifacts:config=config/rbac/controlplane

.PHONY: generate-check
generate-check: $(CONTROLLER_GEN) ## Fail if generated files differ from what generate makes
	@hack/make/generate-check.sh
