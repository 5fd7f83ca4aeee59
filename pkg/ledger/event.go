// Package ledger is the node's tamper-evident history: who had which device, when, in which VM, how isolated, and how
// it was cleaned. It reads, verifies and proves, and never writes; package ledger/writer appends. It reads a ledger
// through an [io/fs.FS]: a directory of a live node, or one in an archive.
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
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// DefaultDir is the default directory of a node's ledger (--ledger-dir), relative to the node's root.
const DefaultDir = "var/lib/kata-vfio/ledger"

// Version is the format of events that this code writes, and the newest that it fully understands. It can still verify
// the chain, tree and signatures of newer formats.
const Version = 1

// Type says what happened. Types are stable for machines.
type Type string

// Types of events, in the order of a tenancy. Package prepare writes them unless another writer is named. Result is the
// outcome.
const (
	// Start: the plugin started on the node. Config is the digest of the node's config that applies from now on. The
	// plugin's command writes it before it recovers claims.
	Start Type = "start"
	// Refusal: a claim does not get its devices; Codes and Reason say why. The node is unchanged. While the plugin
	// runs, it records a refusal that the kubelet's retries repeat only once. If a namespace has very many refusals,
	// some are omitted, and Untold of the next one counts them.
	Refusal Type = "refusal"
	// Prepare: a claim takes the Devices, each with its current isolation verdict. The plan is on disk, and none of it
	// is executed yet.
	Prepare Type = "prepare"
	// Bind: a function changed its kernel driver.
	Bind Type = "bind"
	// Reset: Devices were reset, or a reset was attempted. Reset has the method, the duration and the fingerprints
	// before and after.
	Reset Type = "reset"
	// Policy: the PF of a VF enforces Settings on the VF, or the values in Provided were set for a function. Provided has them as read back.
	Policy Type = "policy"
	// Open: a sandbox is about to get the Devices. It is written before the VM can use them. A second event for the
	// same sandbox adds the VMM's process once that is known.
	Open Type = "open"
	// Close: the sandbox has ended, and no process holds the Devices any more.
	Close Type = "close"
	// Unprepare: the claim has ended on this node, and its Devices were released after the resets before this event.
	// Devices that Codes marks as not proven clean are reset before the next tenant.
	Unprepare Type = "unprepare"
	// Quarantine: the Devices are kept from reuse because they could not be proven clean, for Reason.
	Quarantine Type = "quarantine"
	// Release: a quarantine has ended: a reset was proven, the device left the bus, or, if Codes contains NotProvenClean, the
	// preceding Clear asked to release the device without proof.
	Release Type = "release"
	// Clear: an operator, By, asks to end the quarantine of Devices, for Reason. The events that follow record the
	// outcome.
	Clear Type = "clear"
	// Sanitize: a sanitizing stage of Devices has ended. Claim is the stage's, Sanitize has what it did and found, and
	// Reason why the device is not clean. By is set if an operator accepted changed firmware.
	Sanitize Type = "sanitize"
	// Drain: an operator, By, takes Devices out of use, for Reason: no new claim gets them, and claims that have them
	// keep them. Undrain: they are in use again.
	Drain   Type = "drain"
	Undrain Type = "undrain"
	// Audit: from now on, the checks in Codes fail for the Devices, or for the node if Devices is empty. If Codes is
	// empty, no check fails. The first Audit after a Start without Devices, and its repetition twice a day, cover
	// everything: any check that they and the events written with them (More) don't name passes. The plugin's monitor
	// writes it.
	Audit Type = "audit"
	// Torn: a write that a power failure cut off was found at the end and moved to the file that Reason names. Package
	// ledger/writer writes it.
	Torn Type = "torn"
	// Retention: events were dropped, except for their hashes: events older than the configured age, or the oldest events of a
	// namespace, or of the node itself, that uses more than its share of the ledger's bytes. Reason names the dropped events. Package
	// ledger/writer writes it.
	Retention Type = "retention"
)

// Types returns all types of events.
func Types() []Type {
	return []Type{
		Start, Refusal, Prepare, Bind, Reset, Policy, Open, Close, Unprepare,
		Quarantine, Release, Clear, Sanitize, Drain, Undrain, Audit, Torn, Retention,
	}
}

// Result is the outcome that an event records.
type Result string

// Results.
const (
	OK     Result = "ok"
	Failed Result = "failed"
	// Refused: it was not attempted.
	Refused Result = "refused"
)

// Codes of an [Unprepare]: why the devices return without proof of a clean state.
const (
	// CodeUnproven: there was no reset, because the class waives it, the node went down first, or the function is off
	// the bus.
	CodeUnproven = "NotProvenClean"
	// CodeUndone: the claim was never fully prepared, and no VM had the devices.
	CodeUndone = "Undone"
)

// Event is one line of the ledger. The order of fields and their JSON names are stable, since the hash covers the bytes
// of the line: a line is never encoded again. Unknown values are omitted.
//
// The writer sets Actor and the fields from Version to Machine; callers leave them empty.
type Event struct {
	Version int `json:"v"`
	// Seq is the event's number, from 0 on, and its leaf index in the tree.
	Seq int64 `json:"seq"`
	// Prev is the RFC 6962 leaf hash of the previous line (SHA-256 of a zero byte and the line) in base64; zeros in the
	// first event.
	Prev tlog.Hash `json:"prev"`
	// More is set if the next event belongs to the same write: the ledger has both or neither.
	More bool `json:"more,omitempty"`
	// Time is the node's clock in UTC, to the nanosecond, at the time of writing. BootTime is CLOCK_BOOTTIME in
	// nanoseconds, which can't be set.
	Time     time.Time `json:"time"`
	BootTime int64     `json:"bootTime"`
	// Elapsed is the time from the first event to this one, in nanoseconds. Within a boot, CLOCK_BOOTTIME measures it. Across a
	// reboot, only Time shows how long the node was off, and at most one day of this is added. So a jump of the node's clock makes
	// Elapsed too long by at most one day for each reboot, and a Time that contradicts Elapsed shows the jump.
	Elapsed int64 `json:"elapsed,omitempty"`
	// BootID identifies the boot (/proc/sys/kernel/random/boot_id). IOMMU groups, VFIO nodes and processes are
	// meaningless in another boot.
	BootID string `json:"bootID"`
	Node   string `json:"node"`
	// Machine is a keyed hash of /etc/machine-id, as machine-id(5) recommends.
	Machine string `json:"machine,omitempty"`

	Type  Type  `json:"type"`
	Actor Actor `json:"actor"`
	// Late marks an event that was added after a crash: the journal shows the change, but its exact time is unknown.
	// Time is when the gap was found.
	Late bool `json:"late,omitempty"`

	Devices []Device `json:"devices,omitempty"`
	// Claim is nil if the event concerns no claim. For a binding without a claim, see [Claim.IsBinding].
	Claim *Claim `json:"claim,omitempty"`
	// Pods are the pods that the claim was reserved for.
	Pods  []Pod       `json:"pods,omitempty"`
	VM    *VM         `json:"vm,omitempty"`
	Reset *ResetProof `json:"reset,omitempty"`
	// Sanitize is set in events of that type.
	Sanitize *Sanitization `json:"sanitize,omitempty"`
	// Config is the SHA-256 of the node's config as JSON.
	Config string `json:"config,omitempty"`
	// By is the operator whose command caused the event; nil if the plugin acted by itself.
	By *Operator `json:"by,omitempty"`

	Result Result `json:"result"`
	// Codes are stable identifiers of Reason: refusal codes of package plan, check ids, or codes of this package.
	Codes []string `json:"codes,omitempty"`
	// Reason is the message for people: what failed and why.
	Reason string `json:"reason,omitempty"`
	// Untold is the number of refusals in the claim's namespace since its last recorded [Refusal] that were not written
	// because there were too many at once.
	Untold int `json:"untold,omitempty"`
}

// Actor is the program that wrote an event.
type Actor struct {
	// Component is the program's name, "kata-vfio-plugin", and Version is its build.
	Component string `json:"component"`
	Version   string `json:"version,omitempty"`
	// PID is the process ID in the program's own PID namespace.
	PID int `json:"pid,omitempty"`
}

// Operator is the user who ran a command, as the kernel and sudo report it.
type Operator struct {
	// UID is the real user id of the command's process.
	UID int `json:"uid"`
	// Sudo is $SUDO_USER, the user who became root. Any root process can set it.
	Sudo string `json:"sudo,omitempty"`
}

// String returns "uid 0, alice by sudo".
func (o *Operator) String() string {
	if o.Sudo == "" {
		return fmt.Sprintf("uid %d", o.UID)
	}
	return fmt.Sprintf("uid %d, %s by sudo", o.UID, o.Sudo)
}

// Claim identifies a ResourceClaim. Names may be pseudonyms, see [Pseudonyms]; the UID is always the real one. A name
// can be reused with another UID, a UID is never reused.
type Claim struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// Tenant is the ID of the claim's tenant, if the node had exclusive domains when it was prepared. The ID does not reveal the
	// tenant's name.
	Tenant string `json:"tenant,omitempty"`
}

// BindingUID is the prefix of the UIDs of bindings without a claim: those that the policy "bound" requires, and those that keep a
// device warm.
const BindingUID = "standing-"

// IsBinding reports whether the UID is that of a binding without a claim, see [BindingUID]. Such a binding has no name and no tenant.
func (c *Claim) IsBinding() bool { return strings.HasPrefix(c.UID, BindingUID) }

// Pod identifies a pod in the claim's namespace.
type Pod struct {
	UID  string `json:"uid"`
	Name string `json:"name,omitempty"`
}

// VM is the sandbox that has the devices.
type VM struct {
	// Sandbox is the runtime's id of the pod sandbox.
	Sandbox string `json:"sandbox"`
	// PID is the VMM's process. StartTime distinguishes it from a later process with the same PID: clock ticks after
	// boot (field 22 of proc_pid_stat(5)). Both are zero while unknown.
	PID       int    `json:"pid,omitempty"`
	StartTime uint64 `json:"startTime,omitempty"`
	// Since is when the sandbox got the devices, RFC 3339 in UTC.
	Since string `json:"since,omitempty"`
}

// Device is one function at the time of the event.
type Device struct {
	Address pci.Address `json:"address"`
	// Name is the device name in the ResourceSlice, and Pool is its pool. Both are empty for a function that is
	// assigned along with a device.
	Name string `json:"name,omitempty"`
	Pool string `json:"pool,omitempty"`
	// Role is why the claim takes it: "device", "groupMate", "companion".
	Role      string `json:"role,omitempty"`
	Vendor    pci.ID `json:"vendor,omitzero"`
	Device    pci.ID `json:"device,omitzero"`
	SubVendor pci.ID `json:"subsystemVendor,omitzero"`
	SubDevice pci.ID `json:"subsystemDevice,omitzero"`
	// Group is the IOMMU group in this boot, and GroupMembers are all its functions.
	Group        *int          `json:"iommuGroup,omitempty"`
	GroupMembers []pci.Address `json:"groupMembers,omitempty"`
	// Node is what the VM opens: "/dev/vfio/15", or "/dev/vfio/devices/vfio3".
	Node string `json:"vfioNode,omitempty"`
	// Backend is "Group" or "IOMMUFD"; Attachment is "PhysicalEndpoint" for a VF that
	// the VM gets as a network interface.
	Backend    string `json:"backend,omitempty"`
	Attachment string `json:"attachment,omitempty"`
	// PF is the physical function of a VF. Switch is the nearest upstream port of a PCIe switch above the function.
	// Upstream are all bridges above it, from the root port down.
	PF       *pci.Address  `json:"pf,omitempty"`
	Switch   *pci.Address  `json:"pcieSwitch,omitempty"`
	Upstream []pci.Address `json:"upstream,omitempty"`
	// FirstFunction is function 0 of the physical device, if its device number differs from this function's (ARI).
	FirstFunction *pci.Address `json:"firstFunction,omitempty"`
	// DriverBefore and DriverAfter are the kernel drivers before and after a Bind, "" for none. A failed Bind has no
	// DriverAfter, since it may be partly done.
	DriverBefore *string `json:"driverBefore,omitempty"`
	DriverAfter  *string `json:"driverAfter,omitempty"`
	// Settings are the settings that the PF enforces on a VF.
	Settings *device.VFSettings `json:"settings,omitempty"`
	// Provided are the values that were set for the function besides its binding, as read back.
	Provided []Provided `json:"provided,omitempty"`
	// Isolation is the verdict at the time of a Prepare or Open.
	Isolation *Isolation `json:"isolation,omitempty"`
}

// Isolation is the verdict on a device (see [isolation.Judge]) and its evidence: what the kernel's files and the ports'
// ACS and ATS registers showed.
type Isolation struct {
	Isolated bool `json:"isolated"`
	// Reasons are why the device is not isolated. Notes are further facts for an auditor.
	Reasons  []rule.Code     `json:"reasons,omitempty"`
	Notes    []rule.Code     `json:"notes,omitempty"`
	Evidence []rule.Evidence `json:"evidence,omitempty"`
}

// ResetProof is the record of one reset.
type ResetProof struct {
	Method string `json:"method"`
	OK     bool   `json:"ok"`
	// Milliseconds is how long the kernel took.
	Milliseconds int64 `json:"ms"`
	// Set is every function that the reset affected.
	Set    []pci.Address           `json:"set"`
	Before []isolation.Fingerprint `json:"before,omitempty"`
	After  []isolation.Fingerprint `json:"after,omitempty"`
	// Match reports whether After equals the state of the functions before their tenant. It is about registers.
	Match bool `json:"match"`
	// Memory says what is known of the functions' memory after the reset.
	Memory Memory `json:"memory,omitempty"`
}

// Memory is what a [ResetProof] says about the memory of a device: its frame buffer and other buffers.
type Memory string

// MemoryNotChecked says that the memory was not read or cleared. It may still have the tenant's data.
const MemoryNotChecked Memory = "notChecked"

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

// DecodeEvent decodes a line. It ignores unknown fields of newer versions.
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
	// Claim is a claim's UID, its name, or "namespace/name". Pod is the same for a pod.
	Claim, Pod string
	Device     *pci.Address
	// Since and Until bound Time, both included.
	Since, Until time.Time
	Types        []Type
	// Names computes the pseudonyms of the names in Claim and Pod, to find them in the ledger. It is nil if their key is not known.
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

// named reports whether want, a name or "namespace/name", is the name in the event. have is the event's name of that kind.
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
