package sanitize

import (
	"fmt"
	"slices"
	"strings"
)

// Expected is what the plugin knows before a sanitizer runs.
type Expected struct {
	// Digest is the image's, from the profile: "sha256:...".
	Digest string
	// Device is the device that the sanitizer was given. Its serial is not compared: what a program in the guest reads as
	// serial (of an NVMe controller) isn't what the host reads (PCI's Device Serial Number).
	Device   Device
	Firmware FirmwarePolicy
	// Accepted are the measurements that are accepted for the device, none for a device that was not measured before.
	Accepted []Measurement
	// Missing are measurements whose absence is accepted: a result may lack them, and is compared with those that it has.
	Missing []Measurement
}

// Observed is what the API server has of the sanitizer's pod and its one container.
type Observed struct {
	// ImageID is status.containerStatuses[].imageID: the image as the runtime pulled it, "example.com/sanitizer@sha256:...".
	ImageID string
	// Deleted: the pod is gone, or has a deletion timestamp.
	Deleted bool
	// Terminated: the container ran, and ended.
	Terminated bool
	// Restarts is how often the container was started again.
	Restarts int
	ExitCode int
	// Reason is that of the pod's status if it has one ("Evicted"), otherwise that of the container's state ("OOMKilled").
	Reason string
	// Message is the container's termination message.
	Message string
}

// Outcome is what follows from a sanitizer's run.
type Outcome struct {
	Verdict Verdict
	// Reason is one line, empty for a clean device.
	Reason string
	// Result is nil if there is none that can be believed.
	Result *Result
	// Changes are the changes of the firmware, also those that are only reported.
	Changes []Change
}

// OnlyFirmware reports whether a changed firmware is all that keeps the device from being clean.
func (o Outcome) OnlyFirmware() bool {
	return o.Verdict == Dirty && o.Result != nil && o.Result.Verdict == Clean
}

// Decide concludes from the end of a sanitizer's run. Whatever is not a complete, consistent and unmistakable answer of
// the expected image about the expected device is Unknown, or Interrupted if the cause is outside of both.
func Decide(want Expected, got Observed) Outcome {
	// Until the runtime has created the container, its status has no imageID.
	if got.ImageID != "" || got.Terminated {
		if reason := wrongImage(want.Digest, got.ImageID); reason != "" {
			return Outcome{Verdict: Unknown, Reason: reason}
		}
	}
	if !got.Terminated {
		return unfinished(got)
	}
	result, err := got.answer(want.Device)
	switch {
	// First, because whatever ended the run does not make a dirty device clean.
	case err == nil && result.Verdict == Dirty:
		return want.judge(result)
	case interrupted(got.Reason):
		return Outcome{Verdict: Interrupted, Reason: "the sanitizer was interrupted: " + got.why()}
	case !completed(got.Reason):
		return Outcome{Verdict: Unknown, Reason: "the sanitizer was ended before it was done: " + got.why()}
	// On deletion the container runtime sends SIGTERM, unless the image names another signal, and SIGKILL after the
	// grace period.
	case got.Deleted && slices.Contains([]int{exitSIGTERM, exitSIGKILL}, got.ExitCode):
		return Outcome{Verdict: Interrupted, Reason: "the sanitizer's pod was deleted before it was done"}
	case err != nil:
		return Outcome{Verdict: Unknown, Reason: OneLine(err.Error())}
	}
	return want.judge(result)
}

// wrongImage returns what is wrong with the image that ran, or "".
func wrongImage(digest, imageID string) string {
	if !isDigest(digest) {
		return fmt.Sprintf("the profile's image has the digest %s, want sha256: and 64 hexadecimal digits", show(digest))
	}
	_, ran, found := strings.Cut(imageID, "@")
	switch {
	case imageID == "":
		return "the container's status has no imageID: which image ran is unknown"
	case !found:
		return fmt.Sprintf("the container's imageID is %s, which has no digest of a registry's: the image must be pulled by its digest", show(imageID))
	case ran != digest:
		return fmt.Sprintf("the container ran %s, want the image with %s", show(imageID), digest)
	}
	return ""
}

func isDigest(s string) bool {
	digits, ok := strings.CutPrefix(s, "sha256:")
	return ok && len(digits) == 64 && isHex(digits)
}

// unfinished decides about a container that has not ended, or was never started.
func unfinished(got Observed) Outcome {
	switch {
	case interrupted(got.Reason):
		return Outcome{Verdict: Interrupted, Reason: "the sanitizer did not end: " + got.why()}
	case !completed(got.Reason):
		return Outcome{Verdict: Unknown, Reason: "the sanitizer did not end: " + got.why()}
	case got.Deleted:
		return Outcome{Verdict: Interrupted, Reason: "the sanitizer's pod was deleted before its container ended"}
	}
	return Outcome{Verdict: Unknown, Reason: "the sanitizer has not ended, and its device was taken from it"}
}

// Exit codes of a container that the kubelet ends: 128 and the signal. A sanitizer that ends for SIGTERM must not have
// another, and writes no result.
const (
	exitSIGTERM = 128 + 15
	exitSIGKILL = 128 + 9
)

// interrupted reports whether a reason says that the node, not the sanitizer or its device, ended or refused the pod:
// packages eviction, preemption, nodeshutdown and lifecycle in pkg/kubelet of Kubernetes, NodeLost of the controller
// manager, and ContainerStatusUnknown for a container that was lost while the kubelet or the node was down.
func interrupted(reason string) bool {
	return strings.HasPrefix(reason, "OutOf") || slices.Contains([]string{
		"Evicted", "Preempting", "Terminated", "NodeShutdown", "Shutdown", "NodeLost", "NodeAffinity", "UnexpectedAdmissionError",
		"ContainerStatusUnknown",
	}, reason)
}

// completed reports whether a reason says no more than that the program ended by itself.
func completed(reason string) bool {
	return slices.Contains([]string{"", "Completed", "Error"}, reason)
}

// why describes a reason that is not the program's own.
func (o Observed) why() string {
	switch o.Reason {
	case "OOMKilled":
		return "OOMKilled: it needed more memory than its limit"
	case "DeadlineExceeded":
		return "DeadlineExceeded: it did not end in time"
	}
	return OneLine(clip(o.Reason))
}

// answer returns the result of a container that ended, if it is one about the device and agrees with the exit code.
func (o Observed) answer(device Device) (*Result, error) {
	if o.Restarts > 0 {
		return nil, fmt.Errorf("the sanitizer's container was started %d times, want once: an earlier run may have found something else", o.Restarts+1)
	}
	if !slices.Contains([]int{ExitClean, ExitDirty, ExitUnknown}, o.ExitCode) {
		return nil, fmt.Errorf("the sanitizer ended with exit code %d%s", o.ExitCode, meaning(o.ExitCode))
	}
	result, err := Parse([]byte(o.Message))
	if err != nil {
		return nil, fmt.Errorf("the sanitizer ended with exit code %d, and its result is not usable: %w", o.ExitCode, err)
	}
	if result.Verdict.ExitCode() != o.ExitCode {
		return nil, fmt.Errorf("the sanitizer ended with exit code %d, and its result says %s: they must agree", o.ExitCode, result.Verdict)
	}
	if result.Device != nil && !result.Device.sameModel(device) {
		return nil, fmt.Errorf("the result is about device %s:%s, want %s:%s", result.Device.Vendor, result.Device.Device, device.Vendor, device.Device)
	}
	return result, nil
}

// meaning explains an exit code that no result goes with.
func meaning(code int) string {
	switch {
	case code == ExitUsage:
		return ": its arguments are wrong, correct the profile's command"
	case code > 128 && code < 128+65:
		return fmt.Sprintf(": signal %d ended it", code-128)
	}
	return ""
}

// judge decides about a result that can be believed.
func (e Expected) judge(result *Result) Outcome {
	o := Outcome{Verdict: result.Verdict, Result: result}
	if o.Verdict != Clean {
		o.Reason = result.Reason
	}
	if e.Firmware == Ignore {
		return o
	}
	o.Changes = Compare(e.compared(result.Firmware), result.Firmware)
	if o.Verdict != Clean || e.Firmware == Record {
		return o
	}
	// A policy that this version does not know must not let a device pass.
	if e.Firmware != Require {
		o.Verdict, o.Reason = Unknown, fmt.Sprintf("the firmware policy is %s, want Record or Require", show(string(e.Firmware)))
		return o
	}
	if len(result.Firmware) == 0 {
		o.Verdict, o.Reason = Unknown, "the profile requires measurements of the firmware, and the result has none"
		return o
	}
	if changed := slices.IndexFunc(o.Changes, func(c Change) bool { return !c.Added() }); changed >= 0 {
		o.Verdict, o.Reason = Dirty, "the firmware changed, and the change is not accepted: "+o.Changes[changed].String()
	}
	return o
}

// compared returns the measurements with which those of a result are compared.
func (e Expected) compared(measured []Measurement) []Measurement {
	absent := Lacking(e.Missing, measured)
	present := Lacking(e.Missing, absent)
	return slices.Concat(e.Accepted, present)
}
