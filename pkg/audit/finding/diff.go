package finding

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Kind of a change between two reports.
type Kind string

// Kinds of changes, those that need attention first.
const (
	// New: the finding passed, did not exist, or was not checked in the older report.
	New Kind = "new"
	// Changed: the finding is in both reports, with another state or reach.
	Changed Kind = "changed"
	// Gone: the check passes now, or its object no longer exists.
	Gone Kind = "gone"
)

// Change is one difference between an older and a newer report.
type Change struct {
	Kind Kind `json:"kind"`
	// Old is nil if Kind is New, and New if Kind is Gone.
	Old *Finding `json:"old,omitempty"`
	New *Finding `json:"new,omitempty"`
	// Worse is set if the newer finding is more urgent than the older one.
	Worse bool `json:"worse"`
}

// Finding returns the newer finding, or the older if there is no newer one.
func (c *Change) Finding() *Finding {
	if c.New != nil {
		return c.New
	}
	return c.Old
}

// Diff has the differences of a node between two reports.
type Diff struct {
	Old     Subject  `json:"old"`
	New     Subject  `json:"new"`
	Changes []Change `json:"changes"`
	// Same counts the findings that need attention in both reports.
	Same int `json:"same"`
}

// Compare returns the new, changed and gone findings of the newer report, the worst first. Two findings are the same if they have
// the same rule, device and object. It leaves out passes, and ignores evidence and wording.
func Compare(older, newer *Report) *Diff {
	d := &Diff{Old: older.Subject, New: newer.Subject, Changes: []Change{}}
	before := byKey(older)
	for k, now := range byKey(newer) {
		was, ok := before[k]
		delete(before, k)
		switch {
		case !ok:
			d.Changes = append(d.Changes, Change{Kind: New, New: now, Worse: true})
		case differ(was, now):
			d.Changes = append(d.Changes, Change{Kind: Changed, Old: was, New: now, Worse: worse(was, now)})
		default:
			d.Same++
		}
	}
	// Findings of the older report that no finding of the newer one has removed from the map are gone.
	for _, was := range before {
		d.Changes = append(d.Changes, Change{Kind: Gone, Old: was})
	}
	slices.SortFunc(d.Changes, func(a, b Change) int {
		if c := a.Kind.rank() - b.Kind.rank(); c != 0 {
			return c
		}
		return a.Finding().Compare(b.Finding())
	})
	return d
}

func (k Kind) rank() int { return slices.Index([]Kind{New, Changed, Gone}, k) }

// key identifies a finding. Several findings of one check about one object differ by their order in the report.
type key struct {
	id, device, object string
	n                  int
}

// byKey returns the findings of a report that need attention or are waived, by their keys.
func byKey(r *Report) map[key]*Finding {
	found := map[key]*Finding{}
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.State == Pass || f.State == NotApplicable {
			continue
		}
		k := key{id: f.ID, object: f.Object}
		if f.Device != nil {
			k.device = f.Device.String()
		}
		// Texts differ from run to run, so findings about one object are matched by their order.
		for found[k] != nil {
			k.n++
		}
		found[k] = f
	}
	return found
}

func differ(a, b *Finding) bool {
	return a.State != b.State || a.Severity != b.Severity || a.Exposure != b.Exposure || a.Pending != b.Pending ||
		!slices.Equal(a.Tenants, b.Tenants) || !slices.EqualFunc(a.Devices, b.Devices, func(x, y pci.Address) bool { return x == y })
}

// worse reports whether b is more urgent than a.
func worse(a, b *Finding) bool {
	// The more urgent value sorts first, so a negative number says that b is worse.
	for _, c := range []int{b.State.Compare(a.State), b.Severity.Compare(a.Severity), b.Exposure.Compare(a.Exposure)} {
		if c != 0 {
			return c < 0
		}
	}
	return len(b.Tenants) > len(a.Tenants) || len(b.Devices) > len(a.Devices)
}
