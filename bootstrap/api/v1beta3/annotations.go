package v1beta3

// OrderAnnotation is set by the control plane controller on each KThreesConfig that it creates. It says whether
// the machine founds the cluster (OrderInit) or joins it (OrderJoin). A control plane machine without an order
// joins: the bootstrap provider never turns a join into an init.
const OrderAnnotation = "bootstrap.cluster.x-k8s.io/k3s-order"

const (
	// OrderInit makes the machine found a new cluster (K3s' cluster-init).
	OrderInit = "init"

	// OrderInitAnew is OrderInit for a cluster that was founded before and lost all its servers. It is given only
	// when a human allowed it.
	OrderInitAnew = "init-anew"

	// OrderJoin makes the machine join the cluster behind the control plane endpoint.
	OrderJoin = "join"
)
