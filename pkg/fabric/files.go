package fabric

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Files of a node, below its root: the map that bootstrap captured, the last answer of Fabric Manager, and the version of NVIDIA's driver,
// which is also that of Fabric Manager.
const (
	MapFile     = "var/lib/kata-vfio/fabric/modules.json"
	StateFile   = "var/lib/kata-vfio/fabric/state.json"
	VersionFile = "sys/module/nvidia/version"
)

// State is the last answer of Fabric Manager. It is kept while Fabric Manager is away, because the partitions still exist.
type State struct {
	Partitions List `json:"partitions"`
	// Version is the version of NVIDIA's driver when the partitions were listed; empty if it is unknown. Another version may number
	// partitions differently.
	Version string `json:"version,omitempty"`
	// Away says why Fabric Manager can't be asked now, or why no claim may get a partition; empty if neither.
	Away string `json:"away,omitempty"`
	// Start is the last start of Fabric Manager that is accounted for: after it, GPUs that no claim had were marked for a reset, or Fabric
	// Manager resumed with the list of active partitions.
	Start Start `json:"start,omitzero"`
	// Wrong are the partitions that are active by mistake, because Fabric Manager took the number of another partition for them. They are
	// to be deactivated.
	Wrong List `json:"wrong,omitempty"`
}

// Start identifies a start of Fabric Manager by what is visible on the node.
type Start struct {
	// Boot is the boot of the node.
	Boot string `json:"boot"`
	// Socket is the inode and the modification time of the API's socket. It is empty for an API by TCP or vsock, and while there is no
	// socket.
	Socket string `json:"socket,omitempty"`
}

// Is reports whether a later look can be of the same start. If the later look saw no socket, only the boots are compared.
func (s Start) Is(later Start) bool {
	return s.Boot == later.Boot && (s.Socket == later.Socket || later.Socket == "")
}

// Begun records the start that gave an answer. A socket that is missing for a moment does not mean another start.
func (s *State) Begun(start Start) {
	if start.Socket == "" && start.Boot == s.Start.Boot {
		start.Socket = s.Start.Socket
	}
	s.Start = start
}

// Answered records what Fabric Manager listed, with the version of NVIDIA's driver. While a wrong partition is active, Away stays set.
func (s *State) Answered(l List, version string) {
	var wrong List
	for _, p := range s.Wrong {
		if now := l.With(p.Modules()); now != nil && now.Active {
			wrong = append(wrong, *now) // by its number as it is now
		}
	}
	s.Wrong = wrong
	s.Partitions, s.Version = l, version
	switch {
	case len(s.Wrong) == 0:
		s.Wrong, s.Away = nil, ""
	case s.Away == "":
		s.Away = s.Wrong.wrong()
	}
}

// wrong returns a text that says that these partitions are active by mistake.
func (l List) wrong() string {
	return fmt.Sprintf("active is %s, which no claim has: Fabric Manager took the number of another partition for it after a restart, and it could not be ended yet", l)
}

// SameReason reports whether two reasons why Fabric Manager can't be asked differ only in words with digits, such as process IDs, times and
// counters, which change with each call.
func SameReason(a, b string) bool {
	words := func(text string) []string {
		all := strings.Fields(text)
		for i, word := range all {
			if strings.ContainsAny(word, "0123456789") {
				all[i] = "0"
			}
		}
		return all
	}
	return slices.Equal(words(a), words(b))
}

// Parse reads a file of the node strictly.
func Parse[T State | Map](text []byte) (*T, error) {
	v := new(T)
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return nil, err
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("there is more behind it")
	}
	return v, nil
}
