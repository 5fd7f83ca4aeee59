package board

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/inventory"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/vfio"
)

// Give gives devices to a tenant's claim, in the state in which the plugin leaves them. The functions and all that goes with
// them are on vfio-pci, with fingerprints from before, the CDI spec is written, and a sandbox's VMM has them open. A PF with
// VFs keeps its driver, because VFIO does not take it.
func (t *Tree) Give(tenant, name string, devices ...pci.Address) *journal.Record {
	t.TB.Helper()
	uid := fmt.Sprintf("%s-%s-0000-4000-8000-000000000000", tenant, name)
	rec := &journal.Record{Kind: journal.Claim, State: journal.Prepared, BootID: t.bootID(), Since: "2026-11-22T08:00:00Z"}
	rec.Plan.Claim = plan.Ref{UID: uid, Namespace: tenant, Name: name, Pods: []claim.Pod{{Name: name, UID: "5f0c-" + uid}}}
	for i, a := range devices {
		t.take(rec, i, a)
	}
	slices.SortFunc(rec.Plan.Functions, func(a, b plan.Function) int { return a.Address.Compare(b.Address) })
	t.measure(rec)
	t.recordPrepared(rec)
	t.WriteSpec(rec)
	rec.Sandbox = &journal.Sandbox{ID: SandboxID(uid), Since: "2026-11-22T08:00:01Z"}
	rec.Sandbox.VMM = t.StartVMM(rec)
	t.KeepState(rec)
	t.recordOpened(rec)
	t.Save(rec)
	return rec
}

func (t *Tree) bootID() string {
	boot, err := os.ReadFile(t.Path("proc/sys/kernel/random/boot_id"))
	if err != nil {
		t.TB.Fatal(err)
	}
	return strings.TrimSpace(string(boot))
}

// take enters the i-th device of a claim, with what goes with it.
func (t *Tree) take(rec *journal.Record, i int, a pci.Address) {
	t.TB.Helper()
	s := t.Scan()
	if t.setReset(s, a) {
		s = t.Scan()
	}
	f, ok := s.Function(a)
	if !ok {
		t.TB.Fatalf("give %s: there is no such function", a)
	}
	for _, g := range isolation.AssignmentSet(s, f) {
		if _, ok := rec.Plan.Function(g.Address); !ok {
			rec.Plan.Functions = append(rec.Plan.Functions, t.bind(g, a))
		}
	}
	d := plan.Device{
		Request: fmt.Sprintf("r%d", i), Name: f.Name(), Address: a, Give: []pci.Address{a},
		Backend: v1alpha1.BackendGroup, Policy: v1alpha1.PolicyOnDemand,
	}
	if resets := isolation.Resets(s, f); len(resets) > 0 {
		d.Resets = resets[:1]
	}
	rec.Plan.Devices = append(rec.Plan.Devices, d)
}

// setReset makes the bus the only reset method of a GPU of NVIDIA, as an operator does if a function level reset is not enough.
// A GPU that has no such method gets none. It reports whether it changed the methods.
func (t *Tree) setReset(s *device.Snapshot, a pci.Address) bool {
	f, ok := s.Function(a)
	if !ok || f.Vendor != 0x10de || f.Type != device.GPU || device.IsVFIO(f.Driver) {
		return false
	}
	method := "\n"
	if f.CanReset(isolation.Bus) {
		method = isolation.Bus
	}
	t.write(sysfs.FunctionPath(a)+"/reset_method", method)
	return true
}

// bind has vfio-pci take a function for the device at a.
func (t *Tree) bind(f *device.Function, a pci.Address) plan.Function {
	fn := plan.Function{
		Address: f.Address, Vendor: f.Vendor, Device: f.Device, Role: plan.RoleDevice,
		Original: plan.Binding{Driver: f.Driver}, Target: plan.Binding{Driver: "vfio-pci", Override: "vfio-pci"},
	}
	if f.Group != nil {
		fn.Group = *f.Group
	}
	if f.VF != nil {
		fn.PF = new(f.VF.PF)
	}
	switch {
	case f.Address == a:
	case f.Address.SameSlot(a):
		fn.Role = plan.RoleCompanion
	default:
		fn.Role = plan.RoleGroupMate
	}
	if device.IsVFIO(f.Driver) || f.PF != nil && f.PF.NumVFs > 0 || f.IsBridge() {
		return fn
	}
	t.write(sysfs.FunctionPath(f.Address)+"/driver_override", "vfio-pci")
	if f.Driver != "" {
		t.write("sys/bus/pci/drivers/"+f.Driver+"/unbind", f.Address.String())
	}
	t.write("sys/bus/pci/drivers_probe", f.Address.String())
	return fn
}

// Keep puts a function on vfio-pci for any later claim (policy "bound"), and records that in the journal, as the plugin does.
func (t *Tree) Keep(a pci.Address) {
	t.TB.Helper()
	f, ok := t.Scan().Function(a)
	if !ok {
		t.TB.Fatalf("keep %s: there is no such function", a)
	}
	rec := &journal.Record{Kind: journal.Bound, State: journal.Prepared, BootID: t.bootID(), Since: "2026-11-22T07:00:00Z"}
	rec.Plan.Claim = plan.Ref{UID: "standing-" + a.Label()}
	rec.Plan.Functions = []plan.Function{t.bind(f, a)}
	t.measure(rec)
	t.recordPrepared(rec)
	t.Own(t.groupNode(rec, a), "20600", 0, 0)
	t.Save(rec)
}

// GiveBack binds a function to the node's own driver again, although a claim has it.
func (t *Tree) GiveBack(a pci.Address) {
	t.TB.Helper()
	t.write(sysfs.FunctionPath(a)+"/driver_override", "\n")
	t.write("sys/bus/pci/drivers/vfio-pci/unbind", a.String())
	t.write("sys/bus/pci/drivers_probe", a.String())
}

// write writes to the kernel, which must not refuse it.
func (t *Tree) write(name, value string) {
	t.TB.Helper()
	if err := t.Write(name, []byte(value)); err != nil {
		t.TB.Fatal(err)
	}
}

// Read returns the node's file system, which the caller closes, and its functions.
func (t *Tree) Read() (*sysfs.FS, *device.Snapshot) { return t.open(), t.Scan() }

// Scan returns the node's functions as they are now.
func (t *Tree) Scan() *device.Snapshot {
	t.TB.Helper()
	fs := t.open()
	defer func() { _ = fs.Close() }()
	s, err := inventory.Scan(t.TB.Context(), fs)
	if err != nil {
		t.TB.Fatal(err)
	}
	return s
}

func (t *Tree) open() *sysfs.FS {
	t.TB.Helper()
	fs, err := sysfs.Open(t.Root())
	if err != nil {
		t.TB.Fatal(err)
	}
	return fs
}

// measure enters the fingerprints of a record's functions.
func (t *Tree) measure(rec *journal.Record) {
	t.TB.Helper()
	fs := t.open()
	defer func() { _ = fs.Close() }()
	for _, a := range rec.Plan.Addresses() {
		config, err := fs.ConfigHead(a, isolation.FingerprintBytes)
		if err != nil {
			t.TB.Fatal(err)
		}
		fp, err := isolation.NewFingerprint(a, config)
		if err != nil {
			t.TB.Fatal(err)
		}
		rec.Baseline = append(rec.Baseline, fp)
	}
}

// SpecFile returns the path of a claim's CDI spec.
func SpecFile(rec *journal.Record) string {
	return "run/cdi/kata-vfio.dev-vfio_" + rec.ID() + ".json"
}

// WriteSpec writes a claim's CDI spec, with the nodes that its functions have now.
func (t *Tree) WriteSpec(rec *journal.Record) {
	t.TB.Helper()
	var nodes [][]cdi.Node
	for i := range rec.Plan.Devices {
		node := t.groupNode(rec, rec.Plan.Devices[i].Address)
		number, _ := t.Node(node)
		nodes = append(nodes, []cdi.Node{{Path: node, Major: int64(number.Major), Minor: int64(number.Minor)}})
	}
	spec, err := cdi.Spec(&rec.Plan, nodes)
	if err != nil {
		t.TB.Fatal(err)
	}
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put(SpecFile(rec), string(data)+"\n")
	t.Own(SpecFile(rec), "100644", 0, 0)
	for _, node := range nodes {
		t.Own(node[0].Path, "20600", 0, 0)
	}
}

// groupNode returns the node of a function's group.
func (t *Tree) groupNode(rec *journal.Record, a pci.Address) string {
	fn, _ := rec.Plan.Function(a)
	return vfio.GroupNode(fn.Group)
}

// StartVMM starts the process that has a claim's functions open, in the sandbox
// that the record names or would name.
func (t *Tree) StartVMM(rec *journal.Record) journal.Process {
	t.TB.Helper()
	p := Process{
		PID: t.nextPID(), Comm: "qemu-system-x86", Exe: "/opt/kata/bin/qemu-system-x86_64",
		Container: SandboxID(rec.ID()), Pod: rec.Plan.Claim.Pods[0].UID, Files: []string{"anon_inode:kvm-vm", "anon_inode:kvm-vcpu:0", "/dev/vfio/vfio"},
		Arguments: []string{"/opt/kata/bin/qemu-system-x86_64", "-name", "sandbox-" + SandboxID(rec.ID()), "-machine", "q35,accel=kvm"},
	}
	for i := range rec.Plan.Devices {
		a := rec.Plan.Devices[i].Address
		p.Files = append(p.Files, t.groupNode(rec, a), "anon_inode:[vfio-device]")
		p.Arguments = append(p.Arguments, "-device", "vfio-pci,host="+a.String())
	}
	return t.Start(p)
}

// SandboxID is the runtime's id of the sandbox that has the claim with the UID.
func SandboxID(uid string) string {
	sum := sha256.Sum256([]byte(uid))
	return hex.EncodeToString(sum[:])
}

// StateFile returns the path of Kata's state of the sandbox that has a claim.
func StateFile(rec *journal.Record) string {
	return "run/vc/sbs/" + SandboxID(rec.ID()) + "/persist.json"
}

// KeepState writes the state of Kata's Go runtime for the sandbox that has a claim's functions: the fields that
// pkg/facts/runtimes reads.
func (t *Tree) KeepState(rec *journal.Record) {
	t.TB.Helper()
	type vfioDev struct {
		BDF, Bus     string
		GuestPciPath struct{}
		Type         int
	}
	type device struct {
		Type     string
		ColdPlug bool
		VFIODevs []vfioDev
	}
	devices := make([]device, len(rec.Plan.Devices))
	for i := range rec.Plan.Devices {
		devices[i] = device{Type: "vfio", ColdPlug: true, VFIODevs: []vfioDev{{BDF: rec.Plan.Devices[i].Address.String(), Bus: fmt.Sprintf("rp%d", i), Type: 1}}}
	}
	text, err := json.Marshal(map[string]any{
		"SandboxContainer": SandboxID(rec.ID()), "State": "running", "PersistVersion": 2, "Devices": devices,
		"HypervisorState": map[string]any{"Type": "qemu", "Pid": rec.Sandbox.VMM.PID},
	})
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put(StateFile(rec), string(text)+"\n")
}

// goodObservation begins the node's ledger, as the plugin does at its start.
func (t *Tree) goodObservation() { t.Record(ledger.Event{Type: ledger.Start}) }

// Record appends events to the node's ledger. An event without a result gets the result OK.
func (t *Tree) Record(events ...ledger.Event) {
	t.TB.Helper()
	if t.ledger == nil {
		t.ledger = t.openLedger()
	}
	for i := range events {
		if events[i].Result == "" {
			events[i].Result = ledger.OK
		}
	}
	if _, err := t.ledger.Append(t.TB.Context(), events...); err != nil {
		t.TB.Fatal(err)
	}
}

// NewLedger makes another process continue the ledger, or begin a new one in place of one that was removed.
func (t *Tree) NewLedger() { t.ledger = t.openLedger() }

func (t *Tree) openLedger() *writer.Writer {
	t.TB.Helper()
	at := time.Date(2026, 11, 22, 7, 0, 0, 0, time.UTC)
	w, err := writer.Open(t.TB.Context(), writer.Config{
		Dir: t.Path(ledger.DefaultDir), Node: t.Name, BootID: t.bootID(), Actor: ledger.Actor{Component: "kata-vfio-plugin", Version: "v1.0.0"},
		Now: func() (time.Time, int64) {
			at = at.Add(time.Minute)
			return at, at.UnixNano()
		},
	})
	if err != nil {
		t.TB.Fatal(err)
	}
	return w
}

// recordPrepared writes the beginning of a record to the ledger: the claim, and what was bound for it.
func (t *Tree) recordPrepared(rec *journal.Record) {
	t.TB.Helper()
	c := LedgerClaim(rec)
	prepare := ledger.Event{Type: ledger.Prepare, Claim: c}
	for _, p := range rec.Plan.Claim.Pods {
		prepare.Pods = append(prepare.Pods, ledger.Pod{UID: p.UID, Name: p.Name})
	}
	var events []ledger.Event
	for i := range rec.Plan.Functions {
		fn := &rec.Plan.Functions[i]
		prepare.Devices = append(prepare.Devices, ledger.Device{Address: fn.Address, Role: string(fn.Role), Vendor: fn.Vendor, Device: fn.Device, Group: new(fn.Group)})
		if now := t.driver(fn.Address.String()); now != fn.Original.Driver {
			events = append(events, ledger.Event{Type: ledger.Bind, Claim: c, Devices: []ledger.Device{{
				Address: fn.Address, DriverBefore: new(fn.Original.Driver), DriverAfter: new(now),
			}}})
		}
	}
	t.Record(append([]ledger.Event{prepare}, events...)...)
}

// recordOpened writes the hand-over to the record's sandbox.
func (t *Tree) recordOpened(rec *journal.Record) {
	t.TB.Helper()
	e := ledger.Event{Type: ledger.Open, Claim: LedgerClaim(rec), VM: &ledger.VM{
		Sandbox: rec.Sandbox.ID, PID: rec.Sandbox.VMM.PID, StartTime: rec.Sandbox.VMM.StartTime, Since: rec.Sandbox.Since,
	}}
	for _, a := range rec.Plan.Addresses() {
		e.Devices = append(e.Devices, ledger.Device{Address: a})
	}
	t.Record(e)
}

// LedgerClaim names the claim of a record as the ledger does.
func LedgerClaim(rec *journal.Record) *ledger.Claim {
	c := rec.Plan.Claim
	return &ledger.Claim{UID: c.UID, Namespace: c.Namespace, Name: c.Name}
}

// driver returns the driver that the kernel has bound to a function.
func (t *Tree) driver(address string) string {
	target, err := os.Readlink(t.Path("sys/bus/pci/devices/" + address + "/driver"))
	if err != nil {
		return ""
	}
	return target[strings.LastIndexByte(target, '/')+1:]
}
