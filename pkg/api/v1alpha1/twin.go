package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// Twins. A node config may share GPUs with another DRA driver, which gives them to containers ([DeviceRule.SharedWith]).
// Both drivers publish the function, each as a device of its own: one is the other's twin. kata-vfio-controller ensures
// that a function has one consumer, by DeviceTaintRules on the twins of an allocated device and by the conditions below in
// the claim's status.devices. The plugin's Prepare checks it again.

// Conditions that a scheduler waits for after it has allocated a shared device and before it binds the pod
// (bindingConditions and bindingFailureConditions of the device).
const (
	// ConditionTwinReserved is true once no claim has the device's twin and none can get it.
	ConditionTwinReserved = DriverName + "/TwinReserved"
	// ConditionTwinInUse is true if a claim has the twin. The scheduler then allocates another device.
	ConditionTwinInUse = DriverName + "/TwinInUse"
)

// TaintTwin is the key of the taint that DeviceTaintRules put on the device of one driver while the other driver's device
// is in use. The value names the driver in use.
const TaintTwin = DriverName + "/twin-in-use"

// Values of [TaintTwin].
const (
	TwinOurs   = "Ours"   // kata-vfio has the function: the taint is on the other driver's device
	TwinTheirs = "Theirs" // the other driver has the function: the taint is on ours
)

// Labels and annotations of the DeviceTaintRules of kata-vfio-controller.
const (
	// LabelManagedBy is the label of the rules, with the value [ManagedByController].
	LabelManagedBy      = "app.kubernetes.io/managed-by"
	ManagedByController = "kata-vfio-controller"
	// AnnotationTwinOf names the device that is in use: "<driver>/<pool>/<device>".
	AnnotationTwinOf = DriverName + "/twin-of"
	// AnnotationTwinPCI is the function: "<node>/<address>".
	AnnotationTwinPCI = DriverName + "/pci"
	// AnnotationTwinClaim is the claim that has it: UID/resourceVersion, so that each allocation has another value.
	AnnotationTwinClaim = DriverName + "/claim"
)

// TwinRuleName returns the name of the DeviceTaintRule on a device. It depends on the device alone, so that two controllers
// can't make two.
func TwinRuleName(driver, pool, device string) string {
	sum := sha256.Sum256([]byte(driver + "/" + pool + "/" + device))
	return "kata-vfio-twin-" + hex.EncodeToString(sum[:8])
}

// Shares reports whether a rule shares GPUs with another driver.
func (c *NodeConfig) Shares() bool {
	return slices.ContainsFunc(c.Devices, func(r DeviceRule) bool { return r.SharedWith != "" })
}

// checkShared adds a problem for each field that contradicts sharing in the rule at path.
func (r *DeviceRule) checkShared(p *problems, path string) {
	at := path + ".sharedWith"
	switch {
	case r.SharedWith == "":
		return
	case r.SharedWith == DriverName:
		p.add(at, "%s is this driver; name the DRA driver that gives the same GPUs to containers, such as gpu.nvidia.com", show(r.SharedWith))
	case !isDriverName(r.SharedWith):
		p.add(at, "%s is not the name of a DRA driver; want a DNS subdomain of at most 63 characters, such as gpu.nvidia.com", show(r.SharedWith))
	}
	switch {
	case r.Exclude:
		p.add(at, "%s says nothing where exclude is true; remove one of the two", show(r.SharedWith))
		return
	case r.Policy == PolicyBound:
		p.add(at, "%s needs policy onDemand: a GPU that is always on VFIO can't be used by another driver", show(r.SharedWith))
	case r.Warm != Share{}:
		p.add(at, "%s can't be combined with warm: a GPU that waits on VFIO can't be used by another driver; remove one of the two", show(r.SharedWith))
	}
	if len(r.Match.Types) != 1 || r.Match.Types[0] != typeGPU {
		p.add(path+".match.types", "a rule with sharedWith is for GPUs only; set types: [%s]", typeGPU)
	}
}
