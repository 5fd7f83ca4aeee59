package rule

// Codes of a ledger that does not verify. Package ledger finds them.
const (
	// Damaged: bytes of the ledger differ from those that were written.
	Damaged Code = "Damaged"
	// Missing: a file of the ledger does not exist.
	Missing Code = "Missing"
	// Unfinished: the ledger ends with a partial write.
	Unfinished Code = "Unfinished"
	// ForeignKey: another key signed the ledger, or an anchor.
	ForeignKey Code = "ForeignKey"
	// Truncated: an anchor covers more events than the ledger has.
	Truncated Code = "Truncated"
	// Rewritten: an anchor covers other events than the ledger has.
	Rewritten Code = "Rewritten"
	// NoAnchor: none of the given anchors belongs to the ledger.
	NoAnchor Code = "NoAnchor"
)

// Codes of what needs attention in a cluster. `kubectl kata-vfio status` prints them.
const (
	// DaemonSetNotReady: nodes have no pod of a DaemonSet that is ready.
	DaemonSetNotReady Code = "DaemonSetNotReady"
	// DeploymentNotReady: no replica of a Deployment is ready.
	DeploymentNotReady Code = "DeploymentNotReady"
	// PluginNotReady: the plugin of a node is missing, or not ready.
	PluginNotReady Code = "PluginNotReady"
	// BootstrapNotReady: the pod of bootstrap on a node is not ready.
	BootstrapNotReady Code = "BootstrapNotReady"
	// NodeDrifted: a node differs from its blueprint.
	NodeDrifted Code = "NodeDrifted"
	// NodeRefusesClaims: a node refuses all new claims. The reason is a code of its own.
	NodeRefusesClaims Code = "NodeRefusesClaims"
	// RuntimeNotConnected: the container runtime of a node does not call the plugin.
	RuntimeNotConnected Code = "RuntimeNotConnected"
	// NodeReportStale: the last report of a node's plugin is too old.
	NodeReportStale Code = "NodeReportStale"
	// NodeAlert: a node has the cause of an alert.
	NodeAlert Code = "NodeAlert"
	// DeviceTainted: taints keep claims from a device. Their values are codes of their own.
	DeviceTainted Code = "DeviceTainted"
	// ClaimRefused: a claim was refused. The reason is a code of its own.
	ClaimRefused Code = "ClaimRefused"
)
