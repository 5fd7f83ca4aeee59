package podres

import (
	"fmt"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// HostSpecs resolve CDI names by the specs of the node, as Kata will.
type HostSpecs struct{ cache *cdi.Cache }

// NewHostSpecs returns the specs in the directories, of which later ones win
// and missing ones are empty. Kata reads /etc/cdi and /var/run/cdi.
func NewHostSpecs(dirs ...string) (*HostSpecs, error) {
	// Without auto-refresh, which looks again some time after a change only.
	cache, err := cdi.NewCache(cdi.WithSpecDirs(dirs...), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, fmt.Errorf("read CDI specs: %w", err)
	}
	return &HostSpecs{cache: cache}, nil
}

// Resolve returns those of the names that are devices now. All specs are read
// once for it; a spec that can't be read has no devices, for Kata neither.
func (h *HostSpecs) Resolve(names []string) map[string]bool {
	_ = h.cache.Refresh() // what is wrong with a spec is its writer's to hear
	known := map[string]bool{}
	for _, name := range names {
		if h.cache.GetDevice(name) != nil {
			known[name] = true
		}
	}
	return known
}
