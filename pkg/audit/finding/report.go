package finding

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Report is one audit of one node or cluster.
type Report struct {
	// Subject identifies the audited node or cluster.
	Subject Subject `json:"subject"`
	// Profile is the name of the profile by which the subject was judged.
	Profile string `json:"profile"`
	// FailOn is the least severity whose failures make the verdict fail. If it is empty, every failure does.
	FailOn rule.Severity `json:"failOn,omitempty"`
	// Basis says which functions count as available to tenants. It is nil if the report is not about a node.
	Basis *Basis `json:"basis,omitempty"`
	// Exposures explain the exposures of the findings.
	Exposures map[Exposure]string `json:"exposures,omitempty"`
	// RuleFiles are the files of the organization's own rules that were checked.
	RuleFiles []rule.File `json:"ruleFiles,omitempty"`
	// Findings are in the order of [Finding.Compare]. Every rule has one or more.
	Findings []Finding `json:"findings"`
	Summary  Summary   `json:"summary"`
	// UnusedWaivers are the waivers that match no failure.
	UnusedWaivers []Waiver `json:"unusedWaivers,omitempty"`
	// NodeRecords are set in a node's report; nil if they were not requested.
	NodeRecords *NodeRecords `json:"books,omitempty"`
	// Kata is set in a node's report; nil if it was not requested.
	Kata *Kata `json:"kata,omitempty"`
	// Passed are the rules whose findings passed or did not apply, and were removed when the report was read. A rule that is neither here
	// nor in Findings was not checked.
	Passed []string `json:"-"`
	// Source is the pod that wrote a node's report. It is empty if the log does not name the pod.
	Source string `json:"-"`
}

// Subject identifies an audited node or cluster.
type Subject struct {
	// Kind is node, cluster or archive.
	Kind string `json:"kind"`
	// Name is the node's hostname or the cluster's API address.
	Name   string `json:"name,omitempty"`
	Root   string `json:"root,omitempty"`
	BootID string `json:"bootID,omitempty"`
	Kernel string `json:"kernel,omitempty"`
	// Time is the time when the facts were read, RFC 3339 in UTC.
	Time string `json:"time"`
	// Version is the version of the auditor.
	Version string `json:"version"`
	// LeftOut names the parts of the node that an archive leaves out.
	LeftOut string `json:"leftOut,omitempty"`
}

// Label returns the subject's best known name: its name, or else the place where it was read, or its kind.
func (s *Subject) Label() string {
	switch {
	case s.Name != "":
		return s.Name
	case s.Root != "" && s.Root != "/":
		return s.Root
	}
	return s.Kind
}

// Summary counts a report's findings.
type Summary struct {
	// Verdict is fail if a check fails with the severity of [Report.FailOn] or a worse one, or if LedgerFails is set. Else it is unknown if a
	// check could not tell, else pass.
	Verdict State `json:"verdict"`
	// LedgerFails is set if [LedgerSound] fails.
	LedgerFails bool `json:"ledgerFails,omitempty"`
	// States counts findings by state, including states without any.
	States map[State]int `json:"states"`
	// Failed counts failures by severity, including severities without any.
	Failed map[rule.Severity]int `json:"failed"`
	// RuleStates counts rules, each once, by the worst state of their findings. The sum is Rules. FailedRules counts the rules that
	// fail, each once, by the worst severity of their failures.
	RuleStates  map[State]int         `json:"ruleStates"`
	FailedRules map[rule.Severity]int `json:"failedRules"`
	// Rules is the number of rules that were checked, and Devices the number of functions.
	Rules   int `json:"rules"`
	Devices int `json:"devices"`
	// Tenants and Claims count the tenants and claims that hold functions affected by a failure.
	Tenants int `json:"tenantsAffected"`
	Claims  int `json:"claimsAffected"`
}

// Severities returns all severities, worst first.
func Severities() []rule.Severity {
	return []rule.Severity{rule.Critical, rule.High, rule.Medium, rule.Low, rule.Info}
}

// SeverityWords lists all severities for a help text or an error, worst first.
func SeverityWords() string {
	var words []string
	for _, s := range Severities() {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}

// Finish sorts and counts the findings, and replaces nil lists by empty ones, so that JSON has no null. It may be called again.
func (r *Report) Finish() {
	r.fillLists()
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return a.Compare(&b) })
	s := Summary{
		States: map[State]int{}, Failed: map[rule.Severity]int{},
		RuleStates: map[State]int{}, FailedRules: map[rule.Severity]int{}, Devices: r.Summary.Devices, Claims: r.Summary.Claims,
	}
	for _, state := range States() {
		s.States[state], s.RuleStates[state] = 0, 0
	}
	for _, severity := range Severities() {
		s.Failed[severity], s.FailedRules[severity] = 0, 0
	}
	rules, tenants := map[string]bool{}, map[string]bool{}
	for i := range r.Findings {
		f := &r.Findings[i]
		if !rules[f.ID] { // the first finding of a rule is its worst
			rules[f.ID] = true
			s.RuleStates[f.State]++
			if f.State == Fail {
				s.FailedRules[f.Severity]++
			}
		}
		s.States[f.State]++
		if f.State == Fail {
			s.Failed[f.Severity]++
			s.LedgerFails = s.LedgerFails || f.ID == LedgerSound
			for _, t := range f.Tenants {
				tenants[t] = true
			}
		}
	}
	s.Rules, s.Tenants = len(rules), len(tenants)
	s.Verdict = s.verdict(r.FailOn)
	r.Summary = s
}

// JudgedAt returns the report with the verdict at the severity.
func (r *Report) JudgedAt(failOn rule.Severity) *Report {
	judged := *r
	judged.FailOn, judged.Summary.Verdict = failOn, r.Summary.verdict(failOn)
	return &judged
}

func (s *Summary) verdict(failOn rule.Severity) State {
	switch {
	case s.FailsAt(failOn):
		return Fail
	case s.States[Unknown]+s.States[Error] > 0:
		return Unknown
	}
	return Pass
}

// LedgerSound is the rule whose failure means that the node's history can't be trusted. It makes a run fail whatever its severity: such a
// ledger may hide the facts that other findings are based on.
const LedgerSound = "OBS-001"

// FailsAt reports whether the finding makes a run fail at a severity: it fails with this severity or a worse one, or it is of [LedgerSound].
// An empty severity stands for any. The exit code and all formats follow it.
func (f *Finding) FailsAt(at rule.Severity) bool {
	return f.State == Fail && (at == "" || f.ID == LedgerSound || f.Severity.Compare(at) <= 0)
}

// Fails reports whether a check fails, with any severity.
func (s *Summary) Fails() bool { return s.States[Fail] > 0 }

func (r *Report) fillLists() {
	r.Findings = list(r.Findings)
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Devices, f.Tenants, f.Evidence = list(f.Devices), list(f.Tenants), list(f.Evidence)
	}
}

func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// FailsAt reports whether a finding of the report fails at a severity: see [Finding.FailsAt].
func (s *Summary) FailsAt(at rule.Severity) bool {
	if s.LedgerFails {
		return true
	}
	for severity, failed := range s.FailedRules {
		if failed > 0 && (at == "" || severity.Compare(at) <= 0) {
			return true
		}
	}
	return false
}

// Failing returns the findings that fail at a severity, in order: see [Finding.FailsAt].
func (r *Report) Failing(at rule.Severity) []Finding {
	var failing []Finding
	for i := range r.Findings {
		if r.Findings[i].FailsAt(at) {
			failing = append(failing, r.Findings[i])
		}
	}
	return failing
}

// Undetermined reports whether a check has no answer.
func (r *Report) Undetermined() bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.State == Unknown || f.State == Error })
}

// Basis is the source by which an audit determines the functions that tenants can get. Functions that a claim has or that are bound
// to a VFIO driver also count.
type Basis struct {
	By BasisKind `json:"by"`
	// Functions is the number that the plugin publishes, or would publish.
	Functions int `json:"functions"`
	// Problem says why the node's config was not used. It is empty if the config was used, or if there is none.
	Problem string `json:"problem,omitempty"`
}

// BasisKind is the kind of source that names the functions that tenants can get.
type BasisKind string

// Kinds of [Basis].
const (
	// ByPlugin: the plugin publishes on this node, and its record names the functions.
	ByPlugin BasisKind = "published"
	// ByConfig: no plugin publishes here, and the node's config selects them.
	ByConfig BasisKind = "node-config"
	// ByDefault: no plugin publishes here, and the node has no config. The default config selects every GPU and VF.
	ByDefault BasisKind = "default-config"
)

// String returns the basis for a headline: "judged as the default config would publish: 24 functions".
func (b Basis) String() string {
	functions := output.Count(b.Functions, "function")
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

// Sentence returns the same as a sentence of its own.
func (b Basis) Sentence() string {
	text := b.String()
	return strings.ToUpper(text[:1]) + text[1:] + "."
}

// NodeRecords are a node's own records of the owners of its functions, for comparisons with other sources, as by
// `kata-vfio-audit cluster` with the API server.
type NodeRecords struct {
	// Claims are the claims in the journal, by UID.
	Claims []ClaimRecord `json:"claims"`
	// Ledger is the state of the ledger; nil if there is none, or if it could not be read.
	Ledger *LedgerRecord `json:"ledger,omitempty"`
	// LedgerUnread says why the ledger could not be read; empty if it was, if there is none, or in reports of older versions.
	LedgerUnread string `json:"ledgerUnread,omitempty"`
}

// ClaimRecord is a claim's record.
type ClaimRecord struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is a state of package journal: "prepared", "quarantined".
	State string `json:"state"`
	// Since is when the state was entered, RFC 3339 in UTC.
	Since string `json:"since,omitempty"`
	// Devices are the functions that the claim has.
	Devices []pci.Address `json:"devices"`
}

// LedgerRecord is the state of a ledger.
type LedgerRecord struct {
	Events int64 `json:"events"`
	// Checkpoint is the signed checkpoint after the last event, its lines joined by spaces. It is an anchor if the report is kept off
	// the node.
	Checkpoint string `json:"checkpoint"`
	// Key is the node's public key, from the ledger's directory.
	Key string `json:"key"`
}

// Kata has the settings of a node's Kata, and its running sandboxes. `kata-vfio-audit cluster` compares them with the
// cluster's RuntimeClasses, and kubectl's plugin explains a pod by them.
type Kata struct {
	Handlers []KataHandler `json:"handlers"`
	// Damaged are the files of the container runtimes that can't be parsed, one sentence each: handlers may be missing.
	Damaged []string `json:"damaged,omitempty"`
	// CRIOff is the file that switches containerd's CRI plugin off, so that the kubelet can't use its handlers; empty if none does.
	CRIOff    string        `json:"criOff,omitempty"`
	Sandboxes []KataSandbox `json:"sandboxes"`
	// Unread are the states of Kata's that could not be read, one sentence each.
	Unread []string `json:"unread,omitempty"`
}

// KataHandler is a runtime handler that runs Kata, with the effective settings of its shim: the base with all drop-ins
// merged into it, and Kata's defaults for settings that no file has.
type KataHandler struct {
	Name string `json:"name"`
	// Engine is "containerd" or "CRI-O", and Runtime "go" or "rust".
	Engine  string `json:"engine"`
	Runtime string `json:"runtime"`
	// Config is the base file. Files are the base file and the drop-ins, in the order in which they are read.
	Config string   `json:"config"`
	Files  []string `json:"files"`
	// Damaged says why the settings below are not known; empty if they are.
	Damaged string `json:"damaged,omitempty"`
	// VMM is the hypervisor: "qemu".
	VMM string `json:"vmm,omitempty"`
	// MemoryMiB is the guest's RAM if the pod has no limits, and LimitedMiB is added to the limits if it has some. With the
	// Go runtime they are the same.
	MemoryMiB  int64 `json:"memoryMiB"`
	LimitedMiB int64 `json:"limitedMiB"`
	// FixedSize is set if a VM has its full size from its boot on (static_sandbox_resource_mgmt). InPodsCgroup is set if the VMM is
	// charged to the pod (sandbox_cgroup_only).
	FixedSize    bool `json:"fixedSize"`
	InPodsCgroup bool `json:"inPodsCgroup"`
	// ColdPlug and HotPlug are the ports by which VMs get devices at their boot, and later: "no-port" for none.
	ColdPlug string `json:"coldPlug"`
	HotPlug  string `json:"hotPlug"`
	// RootPorts is the least number of root ports of a VM.
	RootPorts int64 `json:"rootPorts"`
	// VFIOMode is "guest-kernel" if the guest's driver has the device.
	VFIOMode string `json:"vfioMode,omitempty"`
	// Socket is the socket at which the shim asks for a pod's devices (pod_resource_api_sock); empty if it does not ask.
	Socket string `json:"socket,omitempty"`
	// Annotations are the annotations by which pods may change the hypervisor's settings.
	Annotations []string `json:"annotations"`
}

// KataSandbox is one of Kata's sandboxes.
type KataSandbox struct {
	ID        string `json:"id"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// Runtime is "go" or "rust"; empty if only the VMM shows the sandbox.
	Runtime    string `json:"runtime,omitempty"`
	Hypervisor string `json:"hypervisor,omitempty"`
	// PID is the PID of the VMM.
	PID int `json:"pid,omitempty"`
	// Running is set if the process with this PID was found.
	Running bool                `json:"running"`
	Devices []KataSandboxDevice `json:"devices"`
}

// KataSandboxDevice is a function of the node in a sandbox.
type KataSandboxDevice struct {
	Address pci.Address `json:"address"`
	// GuestPath is its path in the guest, "05/00"; empty if unknown.
	GuestPath   string `json:"guestPath,omitempty"`
	Bus         string `json:"bus,omitempty"`
	ColdPlugged bool   `json:"coldPlugged"`
	Endpoint    bool   `json:"endpoint,omitempty"`
	// Claims are the claims that have it by the plugin's journal.
	Claims []string `json:"claims"`
}
