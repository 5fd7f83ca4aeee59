package fleet

import (
	"cmp"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// inAVM is what to do about a pod that would not be in a VM.
const inAVM = "set `runtimeClassName: kata-gpu` (or whatever the cluster's class with a Kata VM is) in the pod"

// explainAndClear is what to do about a quarantine.
const explainAndClear = "`kata-vfio-plugin quarantine explain DEVICE` on its node has the evidence and the ways out; " +
	"`kata-vfio-plugin quarantine clear DEVICE --reason TEXT` tries the reset again"

// advice returns what to do about a reason of a condition or an event; empty where the
// message says it, or nothing is to be done.
func advice(reason string) string {
	return cmp.Or(pluggingAdvice(reason), map[string]string{
		"NoRuntimeClass":                inAVM,
		"HandlerNotAllowed":             inAVM,
		"ReservedForPodGroup":           "give each pod a claim of its own, by a ResourceClaimTemplate, and take the claim out of the PodGroup",
		"DiskFull":                      "free space on the node's disk that has /var/lib/kata-vfio; claims that are prepared can still end",
		"SharedClaim":                   "give each pod a claim of its own, by a ResourceClaimTemplate: a device is in one VM only",
		"NoPod":                         "start a pod that names the claim",
		"PodReplaced":                   "delete the pod, so that its controller makes a new one",
		"Absent":                        "look for the device on its node: `kata-vfio-audit devices`",
		"NotOurs":                       "let the node config have the device, or delete the claim",
		"DiskInUse":                     "unmount or stop what uses the disk, or claim another device",
		"Forbidden":                     "delete the claim: the node itself needs the device",
		"GroupMateNotSelected":          "let the node config name the function that the message names, or claim another device",
		"AllocatedElsewhere":            "delete the pod and create it without spec.nodeName, so that the scheduler places it",
		"OtherPool":                     "delete the pod and its claim, so that a new claim is allocated from the current ResourceSlices",
		"LinkLost":                      "check the slot, cable and power of the device, then reset it",
		"FatalErrors":                   "reset or replace the device",
		"Held":                          "wait for the claim that has the device, or delete it",
		"GroupNotViable":                "take the function that the message names from its driver",
		"NotIsolated":                   "mend what the message names; `kata-vfio-audit devices -o wide` on the node has the evidence",
		"FailsAudit":                    "mend what `kubectl kata-vfio audit` names",
		"PFBusy":                        "wait until the PF's VFs, or the PF itself, are back",
		"ClassNotGranted":               "name a class that is granted to the namespace, or have the cluster's admin add the namespace to the class's annotation " + v1alpha1.AnnotationNamespaces,
		"ClassGone":                     "name a class that exists, and create the pod and its claim again",
		"ClassChanged":                  "create the pod and its claim again, so that the claim is allocated by the class as it is now",
		"NoVLAN":                        "have the cluster's admin set vlan in the DeviceClass's VFConfig, or `allowUntagged: true` where no VLAN is meant",
		"ClassUnknown":                  "create the pod and its claim again",
		"Quarantined":                   explainAndClear,
		"Drained":                       "claim another device; whoever drained it brings it back by `kata-vfio-plugin undrain DEVICE` on its node",
		"WrongType":                     "delete the claim: the device was replaced by another since it was published",
		"NoReset":                       "mend what the message names; `kata-vfio-audit devices -o wide` on the node lists the resets",
		"AdminAccess":                   "leave adminAccess out of the claim: the driver gives nobody a device that another has",
		"UnsupportedSetting":            "leave the setting that the message names out of the claim's or its DeviceClass's parameters",
		"NodeMismatch":                  "delete the pod, so that its container is made anew; if it comes again, compare the CDI specs on its node with `kata-vfio-plugin status`",
		"Unverifiable":                  "see the plugin's log on the node: it says what could not be read",
		"Orphan":                        "see what is left on the node, by the words of the message: `kata-vfio-plugin status`",
		"NoEvidence":                    "see that the node's ledger can be written: its plugin's log says why it can't",
		"InUse":                         "end the process that the message names: often a VM whose pod is gone or whose shim was killed",
		"AddressNotReturned":            "mend the CNI plugin, which is tried again; `unprepare --leave-addresses` where it is gone for good",
		"NoAddressPool":                 "name the pool in the node config (chart: addressPools)",
		"NoAddress":                     "mend the CNI plugin, by the words of the message",
		"WeakensIsolation":              "leave the parameter out: only a DeviceClass may say that",
		"InvalidConfig":                 "mend the parameters in the claim's spec.devices.config",
		"DamagedRecord":                 "look at the node's journal: `kata-vfio-plugin status`",
		"ConfigSpaceDead":               "reset or replace the device: it answers no reads",
		"Locked":                        "reboot the node if it stays: an operation on the device hangs in the kernel",
		"NodeWithoutClaim":              "take the device from the pod's spec, and claim it",
		"NodeOfOthersClaim":             "name the claim in the pod's spec.resourceClaims",
		"MountNotAllowed":               "take the mount from the pod's spec",
		"AnnotationNotAllowed":          "take the annotation from the pod's spec",
		"ClaimNotUsable":                "delete the pod, so that its claim is prepared anew",
		"DeviceNotClean":                "wait for the former sandbox to end",
		"NotInSandbox":                  "delete the pod, so that its VM boots with the device",
		"FailedScheduling":              "see which devices are free: `kubectl kata-vfio devices`; what the class and the claim's selectors ask for must be among them",
		"FailedResourceClaimCreation":   "mend the pod's ResourceClaimTemplate, by the words of the message",
		"FailedPrepareDynamicResources": "see the claim's condition Ready; where it has none, the plugin does not run on the node",
		"FailedCreatePodSandBox":        "see the node's plugin and Kata, by the words of the message",
	}[reason])
}

// pluggingAdvice is about what Kata can't plug into a VM.
func pluggingAdvice(reason string) string {
	return map[string]string{
		"BackendUnavailable":    "ask for the other backend in the parameters, or give the node a kernel that has this one",
		"SeveralOfIOMMUGroup":   "say `companions: Withhold` in the parameters, or claim one function of the IOMMU group",
		"OtherOfIOMMUGroup":     "leave `backend: Group` out of the parameters, give the node a kernel with iommufd, or claim another device",
		"HotPlugWindowTooSmall": "have the node's VMs boot with their devices: cold plug in Kata's configuration, and the plugin without --hot-plug",
	}[reason]
}

// aboutTaint says what a taint of a device means, and what to do.
func aboutTaint(t resourceapi.DeviceTaint, known map[string]*finding.Rule) (text, fix string) {
	switch t.Key {
	case publish.TaintAudit:
		if rule := known[t.Value]; rule != nil {
			return "check " + t.Value + " fails; expected: " + rule.Expected(), rule.Fix
		}
		return "check " + t.Value + " fails", "`kata-vfio-audit explain " + t.Value + "` of the node's version"
	case publish.TaintNotIsolated:
		return "it is not isolated: " + t.Value, "`kata-vfio-audit devices -o wide` on the node names what stands in the way"
	case publish.TaintQuarantined:
		return "it could not be proven clean after a tenant", advice("Quarantined")
	case publish.TaintDrain:
		if t.Value == string(publish.Drained) {
			return "an operator has taken it out of use, and nobody has it", advice("Drained")
		}
		return "an operator takes it out of use, and waits until nobody has it", advice("Drained")
	case publish.TaintDead:
		return "it answers no reads of its configuration", advice("ConfigSpaceDead")
	case publish.TaintLinkLost:
		return "its PCIe link is down", "see to the slot, cable and power, then reset the device"
	case publish.TaintFatalErrors:
		return "it reported fatal errors", "reset or replace the device"
	case publish.TaintNotPreparable:
		return "every claim for it is refused: " + t.Value, cmp.Or(advice(t.Value), "`kata-vfio-audit devices` on the node says why")
	case publish.TaintWithdrawn:
		return "it is no longer on offer: " + t.Value, "end the claim that has it; the node config or the device changed"
	}
	if strings.HasPrefix(t.Key, v1alpha1.DriverName+"/") {
		return "the plugin keeps claims from it: " + taintWord(t), "see the plugin's log on its node: this version does not know the taint"
	}
	return "somebody keeps claims from it: " + taintWord(t), "ask who set the taint"
}
