package podres

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// Journal lists the records; [journal.Store] implements it.
type Journal interface {
	List() ([]*journal.Record, []error)
}

// Specs reads CDI specs; [cdi.Dir] implements it. Its error matches fs.ErrNotExist for a claim without one.
type Specs interface {
	Read(claimUID string) (*specs.Spec, error)
}

// TableConfig holds what a Table reads. All fields are required, except Node.
type TableConfig struct {
	Journal Journal
	Specs   Specs
	// BootID identifies the node's current boot.
	BootID string
	// JournalDir and SpecsDir are the directories of the journal and of the specs.
	JournalDir, SpecsDir string
	// Node is the node's name in the cluster, with which the names of its pools begin. If it is empty, pools are not compared.
	Node string
}

// Table keeps a [View] of the journal. It is safe for concurrent use.
type Table struct {
	cfg TableConfig

	mu      sync.Mutex // guards below
	version dirVersion // the version of the directories, from before entries were read
	entries []entry    // the source of the view
	unread  string     // the error texts of records that can't be read
	view    *View
	// withdrawn says by claim UID why the prepared devices are not allocated to the claim.
	withdrawn map[string]string
}

// entry is the source of one assignment.
type entry struct {
	record *journal.Record
	spec   *specs.Spec // nil if there is none
	fault  string      // why the spec can't be read
}

// NewTable returns a node's table.
func NewTable(c TableConfig) *Table { return &Table{cfg: c, withdrawn: map[string]string{}} }

// Withdraw records why the prepared devices are not allocated to the claim with the UID. An empty reason records that they are allocated to
// it. Withdraw reports whether this is a change.
func (t *Table) Withdraw(uid, why string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.withdrawn[uid] == why {
		return false
	}
	// The cached view has the former reason.
	if t.view = nil; why == "" {
		delete(t.withdrawn, uid)
		return true
	}
	t.withdrawn[uid] = why
	return true
}

// Withdrawn returns why prepared devices are not allocated to their claims, by the claims' UIDs.
func (t *Table) Withdrawn() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.withdrawn)
}

// View returns the current assignments, including those that another instance wrote during a rolling update. It makes two stat calls while
// no file of the directories has changed, and otherwise two for each claim; it reads only changed files. A record or CDI spec that can't be
// read affects only its own claim: see [View.Unread] and [Assignment.SpecFault]. View returns an error if the journal's directory can't be
// read.
func (t *Table) View() (*View, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := readVersion([2]string{t.cfg.JournalDir, t.cfg.SpecsDir})
	if t.view != nil && now.same(t.version) {
		return t.view, nil
	}
	records, errs := t.cfg.Journal.List()
	unread := errors.Join(errs...)
	if !ofRecords(errs) {
		return nil, fmt.Errorf("look up which claim has which device: %w", unread)
	}
	entries, faulty := t.read(records)
	if t.version = now; faulty || unread != nil {
		t.version = dirVersion{} // a file that can't be read now may be readable soon, without a change
	}
	if t.view != nil && slices.EqualFunc(entries, t.entries, entry.same) && errorText(unread) == t.unread {
		return t.view, nil
	}
	all := make([]*Assignment, len(entries))
	for i, e := range entries {
		all[i] = t.assignment(e)
	}
	t.entries, t.unread, t.view = entries, errorText(unread), newView(all, unread)
	return t.view, nil
}

// same reports whether both entries lead to the same assignment. The records are compared deeply, because the journal decodes a record that
// was just written at each List.
func (e entry) same(other entry) bool {
	return e.spec == other.spec && e.fault == other.fault && (e.record == other.record || reflect.DeepEqual(e.record, other.record))
}

// ofRecords reports whether each of the journal's errors is about a single record.
func ofRecords(errs []error) bool {
	return !slices.ContainsFunc(errs, func(err error) bool {
		file, ok := errors.AsType[*journal.FileError](err)
		return !ok || !journal.IsRecord(filepath.Base(file.Path))
	})
}

// errorText returns an error's text, empty for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// read adds the CDI specs to the records, and reports whether one can't be read.
func (t *Table) read(records []*journal.Record) (entries []entry, faulty bool) {
	for _, r := range records {
		if r.Kind == journal.Bound {
			continue
		}
		e := entry{record: r}
		var err error
		if r.State == journal.Prepared {
			e.spec, err = t.cfg.Specs.Read(r.ID())
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.spec, e.fault, faulty = nil, err.Error(), true
		}
		entries = append(entries, e)
	}
	return entries, faulty
}

func (t *Table) assignment(e entry) *Assignment {
	r := e.record
	a := &Assignment{Claim: r.Plan.Claim, State: r.State, Stale: r.BootID != t.cfg.BootID, Withdrawn: t.withdrawn[r.ID()], Sandbox: r.Sandbox, SpecFault: e.fault}
	nodes := map[string][]string{}
	// Group and device numbers can be those of other devices in each boot, so an old spec's nodes are not shown.
	if !a.Stale {
		nodes = nodesByDevice(e.spec)
	}
	for _, d := range r.Plan.Devices {
		if t.cfg.Node != "" && !device.IsNodesPool(t.cfg.Node, d.Pool) {
			a.Withdrawn = fmt.Sprintf("%s is allocated from pool %s, which is not of node %s", d.Name, d.Pool, t.cfg.Node)
		}
		a.Devices = append(a.Devices, Device{
			Request: d.Request, Pool: d.Pool, Name: d.Name, Published: d.Published(), Address: d.Address,
			Endpoint: d.Attachment == v1alpha1.AttachPhysicalEndpoint,
			CDI:      cdi.QualifiedName(r.ID(), d.Name), Nodes: nodes[cdi.DeviceName(r.ID(), d.Name)],
		})
	}
	return a
}

func nodesByDevice(spec *specs.Spec) map[string][]string {
	nodes := map[string][]string{}
	if spec == nil {
		return nodes
	}
	for _, d := range spec.Devices {
		for _, n := range d.ContainerEdits.DeviceNodes {
			nodes[d.Name] = append(nodes[d.Name], n.Path)
		}
	}
	return nodes
}

// settleTime is the age from which the modification time of a directory identifies the directory's state. The kernel's clock for files
// ticks every 10 ms or faster (CONFIG_HZ), and two changes within one tick have the same time.
const settleTime = 50 * time.Millisecond

// dirVersion identifies the state of two directories. Creating, replacing or removing a file changes its
// directory's modification time (POSIX rename(), unlink()). Writing into an existing file does not, but records
// and CDI specs are always replaced.
type dirVersion struct {
	times   [2]time.Time
	settled bool
}

// readVersion reads the directories' version, which is not settled if one can't be read.
func readVersion(dirs [2]string) dirVersion {
	now := time.Now()
	s := dirVersion{settled: true}
	for i, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			return dirVersion{}
		}
		s.times[i] = info.ModTime()
		// A directory that changed a moment ago can change again without another time stamp.
		s.settled = s.settled && now.Sub(s.times[i]) > settleTime
	}
	return s
}

// same reports whether nothing changed since an earlier version.
func (v dirVersion) same(earlier dirVersion) bool { return earlier.settled && v.times == earlier.times }
