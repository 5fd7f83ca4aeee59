// Package ledger is the node's tamper-evident history: who held which device,
// when, in which VM, isolated how, and cleaned by what. It reads, verifies and
// proves; package ledger/writer appends. It never writes, and knows a ledger as
// an [io/fs.FS]: a directory of a live node, or one in an archive.
package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// DefaultDir is where a node's ledger is unless the plugin is configured otherwise (--ledger-dir), below the
// node's root.
const DefaultDir = "var/lib/kata-vfio/ledger"

// Version is the format of events that this code writes, and the newest whose meaning it knows. Chain, tree and
// signatures of newer ones can still be verified.
const Version = 1

// Type says what happened. Types are stable for machines.
type Type string

// Types of events, in the order in which a tenancy has them. Unless another
// writer is named, package prepare writes them; Result says how it ended.
const (
	// Start: the plugin began its work on the node. Config is the digest of the node's config that applies from
	// here on. The plugin's command writes it, before it recovers claims.
	Start Type = "start"
	// Refusal: a claim does not get its devices; Codes and Reason say why. Nothing
	// of it is left on the node. The kubelet's repetitions of the same refusal are
	// one event as long as the plugin runs. Of a namespace that has very many, some are
	// left out, and Untold of the next one counts them.
	Refusal Type = "refusal"
	// Prepare: a claim takes the Devices, each with its isolation verdict of this
	// moment. Its plan is on disk, and nothing of it is done yet.
	Prepare Type = "prepare"
	// Bind: one function went from one kernel driver to another.
	Bind Type = "bind"
	// Reset: Devices were reset, or were to be: Reset holds how, how long it took,
	// and the fingerprints before and after.
	Reset Type = "reset"
	// Policy: the PF of a VF imposes Settings on it, which were read back.
	Policy Type = "policy"
	// Open: a sandbox gets the Devices, before its VM can have them. A second one
	// for the same sandbox completes it with what became known: the VMM's process.
	Open Type = "open"
	// Close: that sandbox has ended; no process holds the Devices any more.
	Close Type = "close"
	// Unprepare: the claim has ended on this node. Its Devices were released as the resets before describe. Those
	// that Codes marks as not proven clean are reset before the next tenant.
	Unprepare Type = "unprepare"
	// Quarantine: the Devices could not be proven clean, for Reason, and are kept
	// from reuse.
	Quarantine Type = "quarantine"
	// Release: a quarantine has ended: by a proven reset, or with the device off the
	// bus, or, where Codes says that it is not proven clean, because the Clear before
	// asked for it without a proof.
	Release Type = "release"
	// Clear: an operator, By, wants the quarantine of Devices to end, for Reason. What
	// came of it the events after tell.
	Clear Type = "clear"
	// Drain: an operator, By, takes Devices out of use for Reason: no new claim gets them, and claims that have
	// them keep them. Undrain: they are in use again.
	Drain   Type = "drain"
	Undrain Type = "undrain"
	// Audit: from here on, the plugin's checks that Codes names fail for the Devices, or for the node where
	// Devices is empty. Without Codes none fails. The first Audit after a Start that has no Devices, and its
	// repetitions twice a day, are about everything: what they and those written with them (More) don't name
	// passes. Package check/monitor writes it.
	Audit Type = "audit"
	// Torn: a write that a power failure cut off was found after the last complete
	// one, and put aside; Reason says where. Package ledger/writer writes it.
	Torn Type = "torn"
	// Retention: events older than the configured age were dropped, except for their hashes; Reason says which.
	// Package ledger/writer writes it.
	Retention Type = "retention"
)

// Types returns all types of events.
func Types() []Type {
	return []Type{
		Start, Refusal, Prepare, Bind, Reset, Policy, Open, Close, Unprepare,
		Quarantine, Release, Clear, Drain, Undrain, Audit, Torn, Retention,
	}
}

// Result is the outcome that an event records.
type Result string

// Results.
const (
	OK     Result = "ok"
	Failed Result = "failed"
	// Refused: it was not begun.
	Refused Result = "refused"
)

// Codes of an [Unprepare]: why the devices come back without a proof.
const (
	// CodeUnproven: no reset was made (the class waives it, or the node went down
	// before, or the function is off the bus).
	CodeUnproven = "NotProvenClean"
	// CodeUndone: the claim never got to its end, and no VM had the devices.
	CodeUndone = "Undone"
)

// Event is one line of the ledger. The order of fields and their JSON names are
// stable: the line's bytes are what is hashed, so that a line is never written
// again in another form. What is not known is left out.
//
// Who appends leaves the fields from Version to Machine, and Actor, to the writer.
type Event struct {
	Version int `json:"v"`
	// Seq counts the events of a ledger from 0 on; it is the leaf's index in its tree.
	Seq int64 `json:"seq"`
	// Prev is the RFC 6962 leaf hash of the line before (SHA-256 of a zero byte and
	// the line), base64; zeros for the first.
	Prev tlog.Hash `json:"prev"`
	// More says that the next event was written together with this one: both are
	// there, or none is.
	More bool `json:"more,omitempty"`
	// Time is the node's clock in UTC, to the nanosecond, at the time of writing. BootTime is CLOCK_BOOTTIME in
	// nanoseconds, which can't be set.
	Time     time.Time `json:"time"`
	BootTime int64     `json:"bootTime"`
	// BootID tells boots apart (/proc/sys/kernel/random/boot_id): IOMMU groups,
	// VFIO nodes and processes mean nothing in another one.
	BootID string `json:"bootID"`
	Node   string `json:"node"`
	// Machine is a keyed hash of /etc/machine-id, as machine-id(5) asks for.
	Machine string `json:"machine,omitempty"`

	Type  Type  `json:"type"`
	Actor Actor `json:"actor"`
	// Late marks an event that was found missing after a crash: the change was made and its journal has it, but
	// the exact time is unknown. Time is when that was found.
	Late bool `json:"late,omitempty"`

	Devices []Device `json:"devices,omitempty"`
	// Claim is nil where no claim is concerned. A standing binding (policy "bound")
	// has a UID that begins with "standing-" and no name.
	Claim *Claim `json:"claim,omitempty"`
	// Pods are those that the claim was reserved for.
	Pods  []Pod       `json:"pods,omitempty"`
	VM    *VM         `json:"vm,omitempty"`
	Reset *ResetProof `json:"reset,omitempty"`
	// Config is the SHA-256 of the node's config as JSON.
	Config string `json:"config,omitempty"`
	// By is the person who asked for it by a command; nil where the node acted by
	// itself.
	By *Operator `json:"by,omitempty"`

	Result Result `json:"result"`
	// Codes are stable words for Reason: those of package plan's refusals, ids of
	// checks, or this package's own.
	Codes []string `json:"codes,omitempty"`
	// Reason is the same in words: what failed and why.
	Reason string `json:"reason,omitempty"`
	// Untold is how many refusals of the claim's namespace came before this [Refusal]
	// and after the last one here, and were not written: there were too many at once.
	Untold int `json:"untold,omitempty"`
}

// Actor is the program that wrote an event.
type Actor struct {
	// Component is the program's name, "kata-vfio-plugin"; Version its build.
	Component string `json:"component"`
	Version   string `json:"version,omitempty"`
	// PID is its process, in its own PID namespace.
	PID int `json:"pid,omitempty"`
}

// Operator is who ran a command, as the kernel and sudo tell.
type Operator struct {
	// UID is the real user id of the command's process.
	UID int `json:"uid"`
	// Sudo is $SUDO_USER, the user who became root. Every process of root can set it.
	Sudo string `json:"sudo,omitempty"`
}

// String returns "uid 0, alice by sudo".
func (o *Operator) String() string {
	if o.Sudo == "" {
		return fmt.Sprintf("uid %d", o.UID)
	}
	return fmt.Sprintf("uid %d, %s by sudo", o.UID, o.Sudo)
}

// Claim names a ResourceClaim. Names may be pseudonyms, see [Pseudonyms]; the
// UID never is: names come back with another UID, UIDs don't come back.
type Claim struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Pod names a pod of the claim's namespace.
type Pod struct {
	UID  string `json:"uid"`
	Name string `json:"name,omitempty"`
}

// VM is the sandbox that has the devices.
type VM struct {
	// Sandbox is the runtime's id of the pod sandbox.
	Sandbox string `json:"sandbox"`
	// PID is the VMM's process, and StartTime tells it from a later one with the same
	// number: clock ticks after boot (field 22 of proc_pid_stat(5)). Zero while
	// they are not known.
	PID       int    `json:"pid,omitempty"`
	StartTime uint64 `json:"startTime,omitempty"`
	// Since is when the sandbox got the devices, RFC 3339 in UTC.
	Since string `json:"since,omitempty"`
}

// Device is one function, as it was at the time of the event.
type Device struct {
	Address pci.Address `json:"address"`
	// Name is its name in the ResourceSlice and Pool its pool's; empty for a
	// function that goes along.
	Name string `json:"name,omitempty"`
	Pool string `json:"pool,omitempty"`
	// Role is why the claim takes it: "device", "groupMate", "companion".
	Role      string `json:"role,omitempty"`
	Vendor    pci.ID `json:"vendor,omitzero"`
	Device    pci.ID `json:"device,omitzero"`
	SubVendor pci.ID `json:"subsystemVendor,omitzero"`
	SubDevice pci.ID `json:"subsystemDevice,omitzero"`
	// Group is the IOMMU group of this boot, GroupMembers all its functions.
	Group        *int          `json:"iommuGroup,omitempty"`
	GroupMembers []pci.Address `json:"groupMembers,omitempty"`
	// Node is what the VM opens: "/dev/vfio/15", or "/dev/vfio/devices/vfio3".
	Node string `json:"vfioNode,omitempty"`
	// Backend is "Group" or "IOMMUFD"; Attachment is "PhysicalEndpoint" for a VF that
	// the VM gets as a network interface.
	Backend    string `json:"backend,omitempty"`
	Attachment string `json:"attachment,omitempty"`
	// PF is the physical function of a VF, Switch the lowest switch upstream port
	// above, Upstream all bridges above, the root port first.
	PF       *pci.Address  `json:"pf,omitempty"`
	Switch   *pci.Address  `json:"pcieSwitch,omitempty"`
	Upstream []pci.Address `json:"upstream,omitempty"`
	// DriverBefore and DriverAfter are the kernel drivers of a Bind, "" for none. A failed one has no DriverAfter:
	// it may have been made in part.
	DriverBefore *string `json:"driverBefore,omitempty"`
	DriverAfter  *string `json:"driverAfter,omitempty"`
	// Settings are what the PF imposes on a VF.
	Settings *device.VFSettings `json:"settings,omitempty"`
	// Isolation is the verdict of the moment, on the device of a Prepare or Open.
	Isolation *Isolation `json:"isolation,omitempty"`
}

// Isolation is the verdict on a device (see [isolation.Judge]) with what the
// kernel's files and the ports' ACS and ATS registers said.
type Isolation struct {
	Isolated bool `json:"isolated"`
	// Reasons are why not, Notes what an auditor wants to know besides.
	Reasons  []isolation.Code     `json:"reasons,omitempty"`
	Notes    []isolation.Code     `json:"notes,omitempty"`
	Evidence []isolation.Evidence `json:"evidence,omitempty"`
}

// ResetProof is what is known of one reset.
type ResetProof struct {
	Method string `json:"method"`
	OK     bool   `json:"ok"`
	// Milliseconds is how long the kernel took.
	Milliseconds int64 `json:"ms"`
	// Set holds every function that the reset touched.
	Set    []pci.Address           `json:"set"`
	Before []isolation.Fingerprint `json:"before,omitempty"`
	After  []isolation.Fingerprint `json:"after,omitempty"`
	// Match says that After is what the functions were before their tenant.
	Match bool `json:"match"`
}

// Concerns reports whether the event is about the function, as one of its devices or of its reset's set.
func (e *Event) Concerns(a pci.Address) bool {
	for i := range e.Devices {
		if e.Devices[i].Address == a {
			return true
		}
	}
	return e.Reset != nil && slices.Contains(e.Reset.Set, a)
}

// Encode returns the event's line, without the newline.
func (e *Event) Encode() ([]byte, error) {
	line, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode %s event: %w", e.Type, err)
	}
	if len(line) > MaxLine {
		return nil, fmt.Errorf("encode %s event: it has %d bytes, the limit of a line is %d", e.Type, len(line), MaxLine)
	}
	return line, nil
}

// MaxLine is the longest line that a ledger may have, in bytes.
const MaxLine = 1 << 20

// DecodeEvent reads a line back. Of a newer version it knows some fields only.
func DecodeEvent(line []byte) (*Event, error) {
	if len(line) > MaxLine {
		return nil, fmt.Errorf("line of %d bytes is longer than the limit of %d", len(line), MaxLine)
	}
	var e Event
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, fmt.Errorf("not an event: %w", err)
	}
	if e.Version < 1 {
		return nil, errors.New("not an event: it has no version")
	}
	return &e, nil
}

// Filter selects events. Its zero value selects all.
type Filter struct {
	// Claim is a claim's UID, its name, or "namespace/name"; Pod the same of a pod.
	Claim, Pod string
	Device     *pci.Address
	// Since and Until bound Time, both included.
	Since, Until time.Time
	Types        []Type
	// Names finds names that are pseudonyms in the ledger; nil without their key.
	Names *Pseudonyms
}

// Match reports whether the filter selects the event.
func (f *Filter) Match(e *Event) bool {
	switch {
	case !f.Since.IsZero() && e.Time.Before(f.Since), !f.Until.IsZero() && e.Time.After(f.Until):
		return false
	case len(f.Types) > 0 && !slices.Contains(f.Types, e.Type):
		return false
	case f.Device != nil && !e.Concerns(*f.Device):
		return false
	}
	return f.isClaim(e) && f.isPod(e)
}

func (f *Filter) isClaim(e *Event) bool {
	if f.Claim == "" {
		return true
	}
	return e.Claim != nil && (e.Claim.UID == f.Claim || f.named(f.Claim, KindClaim, e.Claim.Name, e))
}

func (f *Filter) isPod(e *Event) bool {
	return f.Pod == "" || slices.ContainsFunc(e.Pods, func(p Pod) bool {
		return p.UID == f.Pod || f.named(f.Pod, KindPod, p.Name, e)
	})
}

// named reports whether "namespace/name", or a name alone, is that in the event.
func (f *Filter) named(want, kind, have string, e *Event) bool {
	namespace, name, both := strings.Cut(want, "/")
	if !both {
		return f.same(kind, want, have)
	}
	return e.Claim != nil && f.same(KindNamespace, namespace, e.Claim.Namespace) && f.same(kind, name, have)
}

func (f *Filter) same(kind, want, have string) bool {
	return want == have || f.Names != nil && have != "" && f.Names.Of(kind, want) == have
}
