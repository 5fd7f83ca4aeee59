package twin

import (
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Decision is what to do about a GPU now.
type Decision struct {
	// Actions are to be executed in their order. After the first that fails, drop the rest and decide again.
	Actions []Action
	// NeedsFresh asks the caller to list rules and claims, and to decide again with Fresh: the remaining actions must not be
	// based on a cache. Actions is empty then.
	NeedsFresh bool
	// RequeueAfter is the time after which the decision changes even if the GPU does not; zero if only a change of the GPU
	// changes it.
	RequeueAfter Millis
}

// Action is one write to the API server: [CreateRule], [TouchRule], [DeleteRule] or [SetCondition]. Each carries what
// makes the API server refuse it if another controller was faster. A repetition is refused or changes nothing, and a
// crash between two actions leaves a state from which Decide goes on.
type Action interface{ action() }

// CreateRule creates the rule of a device. It is an error if the rule exists: the caller's cache is behind.
type CreateRule struct {
	Target cluster.ID
	// TwinOf is the device of the other side, the annotation kata-vfio.dev/twin-of. Only its driver is known if the
	// other side publishes none.
	TwinOf cluster.ID
	// Has is the side that has the GPU, the value of the taint: TwinOurs of v1alpha1 in a rule on a twin, TwinTheirs in one
	// on our device.
	Has string
	// Mark is [Claim.Mark] of a claim that has the GPU, "" without one.
	Mark string
}

// TouchRule writes a rule again as [CreateRule] would. The update carries UID and ResourceVersion of Rule. It changes
// the resource version, so that a deletion that another controller decided on before fails.
type TouchRule struct {
	Rule   Rule
	TwinOf cluster.ID
	Has    string
	Mark   string
}

// DeleteRule deletes a rule, with UID and ResourceVersion of Rule as preconditions.
type DeleteRule struct{ Rule Rule }

// SetCondition sets one condition of a claim. The write carries the claim's UID and ResourceVersion: the claim may have
// been deallocated and allocated again meanwhile.
type SetCondition struct {
	Claim Claim
	// AllDevices is true if all our devices of the claim get the condition, not only this GPU. The scheduler looks at
	// devices in order, and one that waits would hide the failure of the next.
	AllDevices bool
	Type       string
	True       bool
	Reason     rule.Code
	Message    string
	// At is the lastTransitionTime. It is never before the allocation, whatever the clocks of the two machines say:
	// Prepare ignores conditions that are older.
	At Millis
}

func (CreateRule) action()   {}
func (TouchRule) action()    {}
func (DeleteRule) action()   {}
func (SetCondition) action() {}
