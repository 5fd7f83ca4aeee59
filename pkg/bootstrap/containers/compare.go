package containers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
)

// refuseDifferences refuses what a runtime would make of its files where it is
// another thing than what they said before with ours over it. last is the file that
// is read last. Each file is named once.
func (w *wants) refuseDifferences(want, got config.Table, last string) {
	wanted, found := want.Settings(), got.Settings()
	all := maps.Clone(wanted)
	maps.Copy(all, found)
	named := map[string]bool{}
	for _, name := range sortedKeys(all) {
		is, ours := found[name], wanted[name]
		if is.Is(ours) || notCompared(name) {
			continue
		}
		file := cmp.Or(is.File, last)
		if !named[file] {
			w.refuse(file, fmt.Sprintf("%s is read after our file and has %s (%s), where %s is wanted.", file, is.Fact().Value, name, ours.Fact().Value),
				"Take that out of "+file+", or have it read before ours.")
		}
		named[file] = true
	}
}

// notCompared are keys that belong to one file, and the sections of the older CRI
// plugin, which were taken over into the newer one's.
func notCompared(name string) bool {
	return name == "imports" || name == "version" || strings.HasPrefix(name, "plugins."+config.CRIBefore+".")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
