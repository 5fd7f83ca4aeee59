package host

import (
	"maps"
	"slices"
	"strings"
)

// labelCommand is what sets a node's labels, in a fixed order.
func labelCommand(labels map[string]string) string {
	words := []string{"kubectl label node NODE --overwrite"}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return strings.Join(words, " ")
}
