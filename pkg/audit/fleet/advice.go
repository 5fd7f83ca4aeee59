package fleet

import (
	"cmp"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// inAVM is what to do about a pod that would not be in a VM.
const inAVM = "set `runtimeClassName: kata-gpu` (or whatever the cluster's class with a Kata VM is) in the pod"

// explainAndClear is what to do about a quarantine.
const explainAndClear = "`kata-vfio-plugin quarantine explain DEVICE` on its node has the evidence and the ways out; " +
	"`kata-vfio-plugin quarantine clear DEVICE --reason TEXT` tries the reset again"

// advice returns what to do about a reason of a condition or an event; empty if the
// message says it, or nothing is to be done.
func advice(reason string) string {
	return cmp.Or(nodeAdvice(reason), pluggingAdvice(reason), twinAdvice(reason), addressAdvice(reason), map[string]string{
		"NoRuntimeClass":       inAVM,
		"HandlerNotAllowed":    inAVM,
		"ReservedForPodGroup":  "give each pod its own claim by a ResourceClaimTemplate, and recreate the PodGroup without resourceClaims, which can't be changed",
		"SharedClaim":          "give each pod its own claim by a ResourceClaimTemplate: only one VM can have a device",
		"NoPod":                "start a pod that names the claim",
		"PodReplaced":          "delete the pod, so that its controller creates a new one",
		"Absent":               "find the device on its node: `kata-vfio-audit devices`",
		"NotOurs":              "select the device in the node config, or delete the claim",
		"DiskInUse":            "unmount the disk or stop its user, or claim another device",
		"Forbidden":            "delete the claim: the node itself needs the device",
		"GroupMateNotSelected": "select the function named in the message in the node config, or claim another device",
		"AllocatedElsewhere":   "delete the pod and create it without spec.nodeName, so that the scheduler places it",
		"OtherNode":            "delete the pod, so that the scheduler places it on the node of its claim",
		"OtherPool":            "delete the pod and its claim, so that a new claim is allocated from the current ResourceSlices",
		"LinkLost":             "check the slot, cable and power of the device, then reset it",
		"FatalErrors":          "reset or replace the device",
		"Held":                 "wait for the claim that has the device, or delete it",
		"HeldByLostClaim":      "end the VM that has the device: `kata-vfio-plugin status` on its node names it, and the runbook says how (\"VM without a claim\")",
		"GroupNotViable":       "unbind the function named in the message from its driver",
		"NotIsolated":          "fix what the message names; `kata-vfio-audit devices -o wide` on the node shows the evidence",
		"FailsAudit":           "fix the checks that `kubectl kata-vfio audit` lists",
		"PFBusy":               "wait until the PF or its VFs are back",
		"ClassNotGranted":      "use a DeviceClass that is granted to the namespace, or ask the cluster's admin to add the namespace to the class's annotation " + v1alpha1.AnnotationNamespaces,
		"ClassGone":            "use a DeviceClass that exists, and create the pod and its claim again",
		"ClassChanged":         "create the pod and its claim again, so that the claim is allocated by the current DeviceClass",
		"NoVLAN":               "ask the cluster's admin to set vlan in the DeviceClass's VFConfig, or `allowUntagged: true` if it needs no VLAN",
		"ClassUnknown":         "create the pod and its claim again",
		"Quarantined":          explainAndClear,
		"Drained":              "claim another device, or run `kata-vfio-plugin undrain DEVICE` on its node when the maintenance is over",
		"WrongType":            "delete the claim: another device replaced this one since it was published",
		"NoReset":              "fix what the message names; `kata-vfio-audit devices -o wide` on the node lists the resets",
		"AdminAccess":          "remove adminAccess from the claim: the driver does not share a device in use",
		"UnsupportedSetting":   "remove the setting named in the message from the parameters of the claim or its DeviceClass",
		"NodeMismatch": "delete the pod, so that its container is created again; if the error repeats, compare the CDI specs on its node with " +
			"`kata-vfio-plugin status`",
		"Unverifiable":                  "read the plugin's log on the node: it says what could not be read",
		"Orphan":                        "run `kata-vfio-plugin status` on the node to see what the message names",
		"InUse":                         "end the process named in the message: often a VM whose pod has ended or whose shim was killed",
		"WeakensIsolation":              "remove the parameter: only a DeviceClass may set it",
		"InvalidConfig":                 "correct the parameters in the claim's spec.devices.config",
		"DamagedRecord":                 "check the node's journal: `kata-vfio-plugin status`",
		"ConfigSpaceDead":               "reset or replace the device: it does not answer reads",
		"Locked":                        "an operation on the device hangs in the kernel: reboot the node if it does not end",
		"NodeWithoutClaim":              "remove the device from the pod's spec, and claim it",
		"NodeOfOthersClaim":             "add the claim to the pod's spec.resourceClaims",
		"MountNotAllowed":               "remove the mount from the pod's spec",
		"AnnotationNotAllowed":          "remove the annotation from the pod's spec",
		"ClaimNotUsable":                "delete the pod, so that its claim is prepared again",
		"DeviceNotClean":                "wait for the former sandbox to end",
		"NotInSandbox":                  "delete the pod, so that its VM boots with the device",
		"FailedScheduling":              "run `kubectl kata-vfio devices` to see the free devices: they must match the class and the claim's selectors",
		"FailedResourceClaimCreation":   "correct the pod's ResourceClaimTemplate: the message says what is wrong",
		"FailedPrepareDynamicResources": "read the claim's condition Ready; if there is none, the plugin does not run on the node",
		"FailedCreatePodSandBox":        "check the node's plugin and Kata: the message says what failed",
	}[reason])
}

// nodeAdvice is about nodes that refuse all new claims.
func nodeAdvice(reason string) string {
	return map[string]string{
		"NodeNotReady":          "run `kata-vfio-plugin status` on the node: it says why the node refuses all new claims",
		"DiskFull":              "free space on the node's disk that has /var/lib/kata-vfio; prepared claims can still end",
		"NoEvidence":            "make the node's ledger writable: the plugin's log says why it is not",
		"StateNotWritable":      "make /var/lib/kata-vfio on the node writable: the plugin's log says why it is not",
		"CDINotWritable":        "make the node's directory of CDI specs (/var/run/cdi) writable, and restart the plugin",
		"PodResourcesNotServed": "read the plugin's log on the node: it says why it can't serve the socket that Kata asks",
	}[reason]
}

// twinAdvice is about GPUs that another DRA driver publishes, too.
func twinAdvice(reason string) string {
	return map[string]string{
		"TwinNotReserved": "check that kata-vfio-controller runs, and create the pod again without spec.nodeName",
		"TwinInUse":       "create the pod again, so that the scheduler allocates another GPU, or waits for this one",
	}[reason]
}

// addressAdvice is about the addresses of VFs.
func addressAdvice(reason string) string {
	return map[string]string{
		"AddressNotReturned": "fix the CNI plugin: the plugin tries again; if it can't be fixed, use `kata-vfio-plugin unprepare --leave-addresses`",
		"NoAddressPool":      "name the pool in the node config (chart: addressPools)",
		"NoAddress":          "fix the CNI plugin's error in the message",
	}[reason]
}

// pluggingAdvice is about what Kata can't plug into a VM.
func pluggingAdvice(reason string) string {
	return map[string]string{
		"OnVFIODenylist":        "claim another device: vfio-pci refuses this one because of known errata",
		"DriverServesVFIO":      "claim another device, or have the whole GPU offered: kata-vfio does not assign vGPUs",
		"BARsUnassigned":        "claim another device, or have the node's firmware or kernel settings changed, as the message says",
		"BARReserved":           "claim another device, or have the firmware's frame buffer removed from this one, as the message says",
		"BackendUnavailable":    "request the other backend in the parameters, or install a kernel that supports this one",
		"SeveralOfIOMMUGroup":   "set `companions: Withhold` in the parameters, or claim one function of the IOMMU group",
		"OtherOfIOMMUGroup":     "remove `backend: Group` from the parameters, install a kernel with iommufd, or claim another device",
		"HotPlugWindowTooSmall": "enable cold plug in the node's Kata configuration, and run the plugin without --hot-plug",
	}[reason]
}

// aboutTaint says what a taint of a device means, and what to do.
func aboutTaint(t resourceapi.DeviceTaint, known map[string]*rule.Rule) (text, fix string) {
	switch t.Key {
	case publish.TaintAudit:
		if rule := known[t.Value]; rule != nil {
			return "check " + t.Value + " fails; expected: " + rule.Expected(), rule.Fix
		}
		return "check " + t.Value + " fails", "run `kata-vfio-audit explain " + t.Value + "` with the node's version"
	case publish.TaintNotIsolated:
		return "it is not isolated: " + t.Value, "`kata-vfio-audit devices -o wide` on the node shows the cause"
	case publish.TaintQuarantined:
		return "its reset after a tenant was not proven", advice("Quarantined")
	case publish.TaintDrain:
		if t.Value == string(rule.Drained) {
			return "an operator drained it, and no claim has it", advice("Drained")
		}
		return "an operator is draining it, and a claim still has it", advice("Drained")
	case publish.TaintNodeNotReady:
		return "its node refuses all new claims: " + t.Value, cmp.Or(advice(t.Value), advice("NodeNotReady"))
	case publish.TaintDead:
		return "it does not answer reads of its configuration space", advice("ConfigSpaceDead")
	case publish.TaintLinkLost:
		return "its PCIe link is down", "check the slot, cable and power, then reset the device"
	case publish.TaintFatalErrors:
		return "it reported fatal errors", "reset or replace the device"
	case publish.TaintNotPreparable:
		return "every claim for it is refused: " + t.Value, cmp.Or(advice(t.Value), "`kata-vfio-audit devices` on the node says why")
	case publish.TaintWithdrawn:
		if t.Value == string(rule.Renamed) {
			return "its pool gets the name that this version of the plugin uses", "wait half an hour: until then a scheduler may give the device to a claim under the former name"
		}
		return "it is no longer published: " + t.Value, "end the claim that has it; the node config or the device changed"
	}
	if strings.HasPrefix(t.Key, v1alpha1.DriverName+"/") {
		return "the plugin's taint keeps claims away: " + taintWord(t), "read the plugin's log on its node: this version does not know the taint"
	}
	return "a taint keeps claims away: " + taintWord(t), "ask the cluster's admin why the taint is set"
}
