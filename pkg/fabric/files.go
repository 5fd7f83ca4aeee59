package fabric

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Files of a node, below its root: the map that bootstrap captured, and what Fabric Manager answered last.
const (
	MapFile   = "var/lib/kata-vfio/fabric/modules.json"
	StateFile = "var/lib/kata-vfio/fabric/state.json"
)

// State is what Fabric Manager answered last. It is kept when Fabric Manager goes away: the partitions are there still.
type State struct {
	Partitions List `json:"partitions"`
	// Away says why Fabric Manager can't be asked now; empty if it answered.
	Away string `json:"away,omitempty"`
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
