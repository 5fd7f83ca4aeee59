package finding

import "fmt"

// Basis says by what an audit knows which functions tenants can get. Functions
// that a claim or a VFIO driver has count besides.
type Basis struct {
	By BasisKind `json:"by"`
	// Functions is how many the plugin publishes, or would publish.
	Functions int `json:"functions"`
	// Problem says why the node's config does not count; empty where it does, and
	// where there is none.
	Problem string `json:"problem,omitempty"`
}

// BasisKind is what names the functions that tenants can get.
type BasisKind string

// Kinds of [Basis].
const (
	// ByPlugin: the plugin publishes on this node, and says what.
	ByPlugin BasisKind = "published"
	// ByConfig: no plugin publishes here, and the node's config selects them.
	ByConfig BasisKind = "node-config"
	// ByDefault: no plugin publishes here, and the node has no config: the default
	// one selects every GPU and VF.
	ByDefault BasisKind = "default-config"
)

// String returns the basis as a headline has it: "judged as the default config
// would publish: 24 functions".
func (b Basis) String() string {
	functions := fmt.Sprintf("%d functions", b.Functions)
	if b.Functions == 1 {
		functions = "1 function"
	}
	switch b.By {
	case ByPlugin:
		return "judged as the plugin publishes: " + functions
	case ByConfig:
		return "judged as the node's config would publish: " + functions
	case ByDefault:
	}
	text := "judged as the default config would publish: " + functions
	if b.Problem != "" {
		text += " (the node's config does not count: " + b.Problem + ")"
	}
	return text
}
