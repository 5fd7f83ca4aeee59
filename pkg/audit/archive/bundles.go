package archive

import (
	"encoding/json"
	"path"
	"strings"
)

// isBundle reports whether a file is how containerd was told to run a container: it has
// the container's environment and command line.
func isBundle(place string) bool {
	return path.Base(place) == "config.json" && strings.Contains(place, "containerd/io.containerd.runtime.v2.task/")
}

// bundle is what of such a file a check judges by: whose the container is, and its mounts.
type bundle struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Mounts      []mount           `json:"mounts,omitempty"`
}

type mount struct {
	Source string `json:"source"`
}

// censorBundle leaves of it what is judged. One that can't be read stays one that can't.
func censorBundle(data []byte) []byte {
	var b bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return []byte("(not collected)")
	}
	for name := range b.Annotations {
		if name != "io.kubernetes.cri.sandbox-namespace" && name != "io.kubernetes.cri.sandbox-name" {
			delete(b.Annotations, name)
		}
	}
	kept, err := json.Marshal(b)
	if err != nil {
		return []byte("(not collected)")
	}
	return kept
}
