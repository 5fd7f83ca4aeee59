package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// view is one record as status prints it. Its JSON names are stable.
type view struct {
	UID       string        `json:"uid"`
	Kind      journal.Kind  `json:"kind"`
	State     journal.State `json:"state"`
	Since     string        `json:"since,omitempty"`
	Namespace string        `json:"namespace,omitempty"`
	Name      string        `json:"name,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	// Warm says that it is a device that is kept ready for claims.
	Warm bool `json:"warm,omitempty"`
	// Pods are the claim's consumers; Sandbox is the VM that has the devices, or
	// had them last.
	Pods    []claim.Pod      `json:"pods,omitempty"`
	Sandbox *journal.Sandbox `json:"sandbox,omitempty"`
	Devices []deviceView     `json:"devices"`
	// Functions are all that the record holds, with their original drivers.
	Functions []plan.Function `json:"functions"`

	bootID string
}

// deviceView is one device of a record.
type deviceView struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Request string `json:"request"`
	Pool    string `json:"pool,omitempty"`
	// Pair is the device that the claim has in its place together with another.
	Pair    string `json:"pair,omitempty"`
	Backend string `json:"backend"`
	// Attachment is PhysicalEndpoint for a VF that Kata takes from the pod's
	// network namespace.
	Attachment string `json:"attachment,omitempty"`
	CDI        string `json:"cdi,omitempty"`
	// AddressPool is the pool that the device has its Addresses from.
	AddressPool string   `json:"addressPool,omitempty"`
	Addresses   []string `json:"addresses,omitempty"`
}

// newView returns the view of a record.
func newView(rec *journal.Record) view {
	c := rec.Plan.Claim
	v := view{
		UID: c.UID, Kind: rec.Kind, State: rec.State, Since: rec.Since, Namespace: c.Namespace, Name: c.Name,
		Reason: rec.Reason, Pods: c.Pods, Sandbox: rec.Sandbox, Devices: []deviceView{}, Functions: rec.Plan.Functions,
		Warm: rec.IsWarm(), bootID: rec.BootID,
	}
	for _, d := range rec.Plan.Devices {
		dv := deviceView{
			Name: d.Name, Address: d.Address.String(), Request: d.Request, Pool: d.Pool, Pair: d.Pair, Backend: string(d.Backend),
			Attachment: string(d.Attachment),
		}
		if rec.Kind == journal.Claim && rec.State == journal.Prepared {
			dv.CDI = cdi.QualifiedName(c.UID, d.Name)
		}
		if d.Lease != nil && rec.State != journal.Quarantined {
			dv.AddressPool, dv.Addresses = d.Lease.Pool, d.Network.Addresses
		}
		v.Devices = append(v.Devices, dv)
	}
	return v
}

// nodeStatus is the content of the journal: records, the errors of files that can't be read, and the functions that have not been
// proven clean.
type nodeStatus struct {
	views      []view
	problems   []error
	needsReset []journal.ResetMark
	drains     []journal.Drain
	sanitizing []sanitizingView
	joins      joins
	// notReady is the reason why the plugin refuses all new claims, by its latest publication in this boot; nil if it does not.
	notReady *plan.NotReady
	// bootID is the node's boot; empty if it can't be read.
	bootID string
	// absent is the directory of a journal that does not exist; empty if it does.
	absent string
}

// status reads the journal.
func (o *options) status(ctx context.Context) (*nodeStatus, error) {
	store, err := o.records()
	if err != nil {
		return nil, err
	}
	records, problems := store.List()
	s := &nodeStatus{bootID: o.bootID()}
	if _, err := os.Stat(o.node.JournalDir()); errors.Is(err, fs.ErrNotExist) {
		s.absent = o.node.JournalDir()
	}
	for _, err := range problems {
		s.problems = append(s.problems, readable(err))
	}
	for _, rec := range records {
		s.views = append(s.views, newView(rec))
	}
	s.readMarks(store, o.snapshot(ctx))
	published := o.published(s.bootID)
	s.notReady = published.NotReady
	if s.joins, err = o.findJoins(ctx, published); err != nil {
		s.problems = append(s.problems, readable(fmt.Errorf("find the exclusive domains and partitions: %w", err)))
	}
	return s, nil
}

// readMarks adds the marks of functions, with their addresses in a snapshot, which may be nil.
func (s *nodeStatus) readMarks(store *journal.Store, snap *device.Snapshot) {
	unproven, err := store.NeedsReset()
	if err != nil {
		s.problems = append(s.problems, readable(err))
	}
	s.needsReset = locateResetMarks(unproven, snap)
	drains, err := store.Drains()
	if err != nil {
		s.problems = append(s.problems, readable(err))
	}
	s.drains = locateDrains(drains, snap)
	unsanitized, err := store.Unsanitized()
	if err != nil {
		s.problems = append(s.problems, readable(err))
	}
	s.sanitizing = newSanitizingViews(unsanitized, snap)
}

// bootID returns the node's boot; empty if that can't be read.
func (o *options) bootID() string {
	fsys, err := sysfs.Open(o.node.Root)
	if err != nil {
		return ""
	}
	defer func() { _ = fsys.Close() }()
	id, _ := fsys.ReadString("proc/sys/kernel/random/boot_id")
	return id
}

// readable adds the fix to the error for a journal without permission.
func readable(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: only root may read the journal (sudo kata-vfio-plugin ...)", err)
	}
	return err
}

// statusView is the status. Its JSON names are stable.
type statusView struct {
	Records    []view              `json:"records"`
	NeedsReset []journal.ResetMark `json:"unclean,omitempty"`
	Drained    []journal.Drain     `json:"drained,omitempty"`
	Sanitizing []sanitizingView    `json:"sanitizing,omitempty"`
	Damaged    []string            `json:"damaged,omitempty"`
	NotReady   *plan.NotReady      `json:"notReady,omitempty"`
	// Exclusive are the exclusive domains of the node.
	Exclusive []plan.DomainState `json:"exclusiveDomains,omitempty"`
	// Fabric is the NVLink fabric of the node config, with its partitions.
	Fabric *plan.FabricState `json:"fabric,omitempty"`
}

// printStatus prints the journal. Only the machine formats include its problems.
func printStatus(w io.Writer, format string, s *nodeStatus) error {
	out := statusView{Records: list(s.views), NeedsReset: s.needsReset, Drained: s.drains, Sanitizing: s.sanitizing, NotReady: s.notReady, Exclusive: s.joins.domains, Fabric: s.joins.fabric}
	for _, p := range s.problems {
		out.Damaged = append(out.Damaged, p.Error())
	}
	if done, err := document(w, format, out); done {
		return err
	}
	if err := printRecords(w, s); err != nil {
		return err
	}
	return errors.Join(printNeedsReset(w, s.needsReset), printSanitizing(w, s.sanitizing), printDomains(w, s.joins.domains), printFabric(w, s.joins.fabric), printDrains(w, s), printNotReady(w, s.notReady))
}

// printRecords prints records as a table, with details below.
func printRecords(w io.Writer, s *nodeStatus) error {
	views := s.views
	if len(views) == 0 {
		_, err := fmt.Fprintln(w, s.none())
		return err
	}
	rows := [][]string{{"CLAIM", "UID", "STATE", "DEVICE", "FUNCTION", "DRIVER", "WAS"}}
	for i := range views {
		rows = append(rows, recordRows(&views[i])...)
	}
	if err := table(w, rows); err != nil {
		return err
	}
	return errors.Join(printAddresses(w, views), printSandboxes(w, views), printReasons(w, views))
}

// none returns why there is no record to show.
func (s *nodeStatus) none() string {
	switch {
	case len(s.problems) > 0:
		return "It is unknown which claims have devices of this node: parts of its journal could not be read."
	case s.absent != "":
		return "There is no journal in " + s.absent + ": the plugin has prepared nothing on this node, or keeps its journal elsewhere (--state-dir)."
	}
	return "No claim has a device of this node."
}

// printAddresses prints below the table the addresses that devices have from pools.
func printAddresses(w io.Writer, views []view) error {
	for i := range views {
		for _, d := range views[i].Devices {
			if len(d.Addresses) == 0 {
				continue
			}
			if _, err := fmt.Fprintf(w, "\n%s of %s has %s from pool %s\n", d.Name, views[i].UID, strings.Join(d.Addresses, ", "), d.AddressPool); err != nil {
				return err
			}
		}
	}
	return nil
}

// printNeedsReset prints which functions are reset before their next tenant.
func printNeedsReset(w io.Writer, marks []journal.ResetMark) error {
	for _, m := range marks {
		since := ""
		if m.Claim != "" {
			since = fmt.Sprintf(" since claim %s, %s", m.Claim, m.Since)
		}
		_, err := fmt.Fprintf(w, "\n%s has had no proven reset%s: %s; the next claim whose class asks for resets has it reset first\n", m.Address, since, m.Why)
		if err != nil {
			return err
		}
	}
	return nil
}

// printSandboxes prints below the table which VMs have the devices.
func printSandboxes(w io.Writer, views []view) error {
	for i := range views {
		v := &views[i]
		if v.Sandbox == nil {
			continue
		}
		names := make([]string, len(v.Pods))
		for j, p := range v.Pods {
			names[j] = p.Name
		}
		vmm := "process not known"
		if v.Sandbox.VMM.PID != 0 {
			vmm = fmt.Sprintf("pid %d", v.Sandbox.VMM.PID)
		}
		if _, err := fmt.Fprintf(w, "\n%s is in sandbox %s of pod %s (%s) since %s\n", v.UID, v.Sandbox.ID, strings.Join(names, ", "), vmm, v.Sandbox.Since); err != nil {
			return err
		}
	}
	return nil
}

// recordRows returns one row for each function of a record. The first row has the claim and its state.
func recordRows(v *view) [][]string {
	name := "-"
	switch {
	case v.Name != "":
		name = v.Namespace + "/" + v.Name
	case v.Warm:
		name = "(kept warm)"
	}
	head := []string{name, v.UID, string(v.State)}
	var rows [][]string
	for i := range v.Functions {
		fn := &v.Functions[i]
		rows = append(rows, append(head, v.device(fn), fn.Address.String(), orDash(fn.Target.Driver), orDash(fn.Original.Driver)))
		head = []string{"", "", ""}
	}
	return rows
}

// published is the name of the device in the ResourceSlice: the pair's or the partition's.
func (d *deviceView) published() string { return cmp.Or(d.Pair, d.Name) }

// device returns the name of the device that a function is, or its role. A device of several functions has its name at the first.
func (v *view) device(fn *plan.Function) string {
	named := map[string]bool{}
	for i := range v.Functions {
		at := slices.IndexFunc(v.Devices, func(d deviceView) bool { return d.Address == v.Functions[i].Address.String() })
		if at < 0 {
			continue
		}
		name := v.Devices[at].published()
		switch {
		case v.Functions[i].Address != fn.Address:
		case named[name]:
			return "(part of it)"
		default:
			return name
		}
		named[name] = true
	}
	return "(" + roleWord(fn.Role, 1) + ")"
}

// printReasons prints below the table the reasons for records' states.
func printReasons(w io.Writer, views []view) error {
	for i := range views {
		v := &views[i]
		if v.Reason == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s is %s: %s\n", v.UID, v.State, v.Reason); err != nil {
			return err
		}
	}
	return nil
}

// printCDI prints below the table the CDI names for a container runtime.
func printCDI(w io.Writer, v *view) error {
	fmt.Fprintln(w)
	for _, d := range v.Devices {
		if _, err := fmt.Fprintln(w, "CDI device", d.CDI); err != nil {
			return err
		}
	}
	return nil
}

// list returns a copy of s, which is not nil.
func list[T any](s []T) []T { return append([]T{}, s...) }

// version returns the module version and commit that the build recorded.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	var v strings.Builder
	v.WriteString(info.Main.Version)
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.WriteString(" " + s.Value)
		}
	}
	return v.String()
}
