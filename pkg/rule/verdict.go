// Package rule has the vocabulary of kata-vfio's refusals and warnings: a code, a severity, a description and a solution.
//
// One fact about a device, pod, claim or node has one code in all components. Prepare refuses a claim with the code, publish
// taints the device with it, the NRI plugin refuses a container with it, and the commands print it. The texts of the codes
// are in texts.yaml; `kata-vfio-audit explain CODE` prints them.
package rule

import (
	"errors"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Verdict is one fault, or one fact that auditors want to know. Isolation, plan, the gate of Prepare and the NRI plugin
// return it. Its JSON names are stable.
type Verdict struct {
	Code Code `json:"code"`
	// Severity is the severity of the code, or a lower one if the case is less severe. It is empty if the code is a refusal without a
	// severity.
	Severity Severity `json:"severity,omitempty"`
	// Device is the name of the claim's device, and Address its function. Both are empty if the verdict is about a pod, or about the
	// function that was judged.
	Device  string      `json:"device,omitempty"`
	Address pci.Address `json:"address,omitzero"`
	// Culprit is the function at fault if it is another one, and Driver the kernel driver that it is bound to.
	Culprit *pci.Address `json:"culprit,omitempty"`
	Driver  string       `json:"driver,omitempty"`
	// Obstacle is the reason why the node refuses all new claims, for [NodeNotReady].
	Obstacle Code `json:"obstacle,omitempty"`
	// Check is the ID of the worst of the failing checks, for [FailsAudit].
	Check string `json:"check,omitempty"`
	// Object is the node, mount, CDI name or annotation of the pod at fault, the rule of the node config, or the profile of the
	// sanitizing stage.
	Object string `json:"object,omitempty"`
	// Text describes the fault and Fix the solution. Each is one sentence without its full stop. Tenants may read both.
	Text string `json:"text"`
	Fix  string `json:"fix"`
	// Evidence are the facts that the verdict rests on.
	Evidence []Evidence `json:"evidence,omitempty"`
	// Err has more details for the log: the error of a read, or facts that the tenant must not see.
	Err error `json:"-"`
}

// Evidence is one fact that a verdict or a finding of the audit rests on. Its JSON names are stable.
type Evidence struct {
	// Path is the path on the node: "/sys/module/vfio/parameters/..."; a "*" matches all files of the pattern. Facts that are not from a
	// file have a word in front: "netlink: eth0 vf 3".
	Path string `json:"path"`
	// Value is the content of the path, in the words of its source. Long values are cut.
	Value string `json:"value"`
	// How is the way of reading: read, list, link, stat, config, process, netlink, journal, ledger, api, audit. It is empty in the
	// evidence of a verdict, which comes from files only.
	How string `json:"how,omitempty"`
	// Error says why the path could not be read. Needs is the privilege for reading it, even if it was read: "root", "CAP_SYS_ADMIN",
	// "CAP_SYS_PTRACE", "hostPID".
	Error string `json:"error,omitempty"`
	Needs string `json:"needs,omitempty"`
}

// Sentence returns the fault, the solution and the code on one line: "gpu-0000-3b-00-0: ...; ... (NotIsolated)".
func (v *Verdict) Sentence() string {
	var b strings.Builder
	if v.Device != "" {
		b.WriteString(v.Device + ": ")
	}
	b.WriteString(v.Text)
	if v.Fix != "" {
		b.WriteString("; " + v.Fix)
	}
	b.WriteString(" (" + string(v.Code) + ")")
	return b.String()
}

// HasCode reports whether one of the verdicts has the code.
func HasCode(verdicts []Verdict, code Code) bool {
	return slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Code == code })
}

// RefusedError is the error for a refused claim, pod or container, with all reasons.
type RefusedError struct {
	// Subject is the refused object: "claim team-a/train (uid)", "pod team-a/train-0".
	Subject string
	// Verdicts are the reasons, at least one, in the order of the checks.
	Verdicts []Verdict
}

// Error returns all reasons on one line. Users read it in Events.
func (e *RefusedError) Error() string {
	reasons := make([]string, len(e.Verdicts))
	for i := range e.Verdicts {
		reasons[i] = e.Verdicts[i].Sentence()
	}
	return "kata-vfio refuses " + e.Subject + ": " + strings.Join(reasons, "; and ")
}

// Unwrap returns the errors that the verdicts rest on.
func (e *RefusedError) Unwrap() []error {
	var causes []error
	for i := range e.Verdicts {
		if err := e.Verdicts[i].Err; err != nil {
			causes = append(causes, err)
		}
	}
	return causes
}

// Has reports whether a reason has the code.
func (e *RefusedError) Has(code Code) bool { return HasCode(e.Verdicts, code) }

// Code returns the code of the first reason.
func (e *RefusedError) Code() Code {
	if len(e.Verdicts) == 0 {
		return NotPrepared
	}
	return e.Verdicts[0].Code
}

// Coded is an error with a code, which conditions, Events, metrics and the ledger show.
type Coded interface {
	error
	Code() Code
}

// Classify returns the code of the outermost error that has a code. It returns [NotPrepared] if no error has one, and "" if err is nil.
func Classify(err error) Code {
	if err == nil {
		return ""
	}
	if coded, ok := errors.AsType[Coded](err); ok {
		return coded.Code()
	}
	return NotPrepared
}
