# The plugin of clusterctl. With its folder on PATH it is called as "clusterctl k3s".

.PHONY: plugin
plugin: ## Build clusterctl-k3s, the plugin of clusterctl, into the cache
	@mkdir -p $(BIN)
	CGO_ENABLED=0 go build -o $(BIN)/clusterctl-k3s ./pkg/plugin/cmd/clusterctl-k3s
