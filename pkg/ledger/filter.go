package ledger

import (
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

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
