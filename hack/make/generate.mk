# Code and manifests made from the Go types and their markers.

API_PATHS := paths=./bootstrap/api/... paths=./controlplane/api/...

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Generate deepcopy code, CRDs and RBAC roles
	$(CONTROLLER_GEN) object $(API_PATHS)
	$(CONTROLLER_GEN) crd $(API_PATHS) output:crd:artifacts:config=config/crd/bases
	go run ./hack/crdgen config/crd/bases

.PHONY: generate-check
generate-check: $(CONTROLLER_GEN) ## Fail if generated files differ from what generate makes
	@hack/make/generate-check.sh
