// Package twin decides which side gets a GPU that two DRA drivers publish: kata-vfio for VMs, and another driver for
// containers. Each device of the other driver for the same GPU is a twin of the device of kata-vfio.
//
// A [View] of the API server's objects has the GPUs, and [Decide] answers for one of them at a time. Both are pure: pkg/controller lists
// the objects and acts. Decide keeps three promises:
//
//   - While a claim has one side, a DeviceTaintRule keeps new claims from the other side.
//   - A claim that has our side is reserved once no claim has a twin, and none can get one any more.
//   - A rule goes as soon as its reason is gone, so that no GPU is lost for either side.
//
// The promises hold if the scheduler acts on a view of rules that is at most [Grace] old. The plugin doesn't rely on
// that: its Prepare looks again before a VM gets the GPU. The model checker of the tests explores both.
package twin

import (
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// Millis is a time since 1970 UTC or a duration, in milliseconds. The package has no clock: the caller passes the time.
type Millis int64

const (
	// Grace is how long a rule must be in force before its device counts as out of reach of new claims. It bounds the
	// age of the view that a scheduler allocates from. A scheduler polls a claim's conditions every 5 s, so that an
	// answer after 3 s arrives no later than one at once.
	Grace Millis = 3_000
	// PublishWait is how long a claim waits for the other driver to publish the GPU. The scheduler waits 600 s.
	PublishWait Millis = 60_000
)

// Ours is what our slice says of the GPU.
type Ours struct {
	Device cluster.ID
	// KernelDriver is the attribute driver: the kernel driver that the function is on, "" if none.
	KernelDriver string
	// Healthy is false if the device has a taint that says that it can't serve: dead, link-lost, fatal-errors,
	// quarantined.
	Healthy bool
}

// fit reports whether the other driver can use the GPU: it is on a host driver and can serve.
func (o *Ours) fit() bool {
	return o.KernelDriver != "" && !device.IsVFIO(o.KernelDriver) && o.Healthy
}

// Condition is one condition of our device in a claim.
type Condition struct {
	// Type is ConditionTwinReserved or ConditionTwinInUse of v1alpha1.
	Type string
	True bool
	// Reason is the condition's reason, At its lastTransitionTime.
	Reason string
	At     Millis
}

// Claim is an allocated ResourceClaim.
type Claim struct {
	UID             string
	Namespace       string
	Name            string
	ResourceVersion string
	// AllocatedAt is the allocation's timestamp.
	AllocatedAt Millis
	// Conditions are those of our device. A claim of the other driver has none.
	Conditions []Condition
}

// Mark identifies one state of the claim, for the annotation of rules: UID and resource version. Another allocation
// of the same claim has another mark.
func (c *Claim) Mark() string { return c.UID + "/" + c.ResourceVersion }

// Rule is a DeviceTaintRule of the controller.
type Rule struct {
	Name            string
	UID             string
	ResourceVersion string
	// Target is the device that the rule's selector names.
	Target cluster.ID
	// Mark is the annotation AnnotationTwinClaim of v1alpha1: the claim that the rule was last written for.
	Mark string
	// Damaged is true if selector or taint are not as the controller writes them. Such a rule keeps no claim away.
	Damaged bool
	// Since is when this process first observed the rule with this UID and generation, undamaged, by its own clock.
	// Clocks of other machines don't enter. The annotation doesn't change the generation.
	Since Millis
}

// GPU is what the API server says of one physical GPU. [View.GPUs] collects it for each GPU that our driver publishes with the
// attribute sharedWith, that a rule of the controller names, or that an allocated claim of ours has.
type GPU struct {
	// PCI is "node/address".
	PCI string
	// SharedWith is the name of the other DRA driver.
	SharedWith string
	// Ours is our published device, nil if it isn't published.
	Ours *Ours
	// Twins are the devices that the other driver publishes for the GPU. With MIG there are several.
	Twins []cluster.ID
	// OurClaims are the claims that have our device, by UID.
	OurClaims []Claim
	// TwinClaims are the claims that have a twin, and the claims that have a device of the other driver on the node that isn't
	// published now, because it may be this GPU. A claim with adminAccess has nothing to itself, and is left out.
	TwinClaims []Claim
	// TwinHolders are the claims of TwinClaims that have a published twin, and so have this GPU for certain.
	TwinHolders []Claim
	// Rules are the controller's rules for our device and for twins, published or not.
	Rules []Rule
	// Fresh is true if the caller listed rules and then claims, in this order and with consistency (resourceVersion
	// ""), after it took the time that it passes. In the other order a rule could be newer than the claims.
	Fresh bool
}

// rule returns the rule that keeps claims from a device, nil if there is none in force.
func (g *GPU) rule(d cluster.ID) *Rule {
	for i := range g.Rules {
		if r := &g.Rules[i]; r.Target == d && !r.Damaged {
			return r
		}
	}
	return nil
}

// published reports whether the other driver publishes the GPU.
func (g *GPU) published() bool { return len(g.Twins) > 0 }
