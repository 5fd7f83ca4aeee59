package dra

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/renameio/v2"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// RunFiles are files that the plugin leaves for the audit, and never reads again
// itself: see [facts.Baseline] and [facts.Published]. They are replaced whole, so
// that a reader never sees half of one, and a crash leaves the former. Safe for
// concurrent use.
type RunFiles struct {
	dir string

	mu        sync.Mutex // guards those below and the files
	kept      bool       // the baseline is there
	published []byte
}

// NewRunFiles returns the files in a directory, which is made when the first is
// written.
func NewRunFiles(dir string) *RunFiles { return &RunFiles{dir: dir} }

// Keep writes the baseline if there is none of this boot. The snapshot's
// configuration spaces were read since the process started.
func (n *RunFiles) Keep(snap *device.Snapshot) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.kept || n.hasBaselineOf(snap.Host.BootID) {
		n.kept = true
		return nil
	}
	data, err := json.Marshal(facts.BaselineOf(snap))
	if err == nil {
		err = n.write(facts.BaselineFile, data)
	}
	if err != nil {
		return fmt.Errorf("keep how ACS is after the boot, for the audit: %w", err)
	}
	n.kept = true
	return nil
}

// hasBaselineOf reports whether there is one of the boot; a damaged one is none.
func (n *RunFiles) hasBaselineOf(bootID string) bool {
	data, err := os.ReadFile(filepath.Join(n.dir, facts.BaselineFile))
	if err != nil {
		return false
	}
	var b facts.Baseline
	return json.Unmarshal(data, &b) == nil && b.BootID == bootID
}

// Publish says which functions can be allocated, and by what they are judged. What was
// said before is not written again.
func (n *RunFiles) Publish(published facts.Published) error {
	data, err := json.Marshal(published)
	if err != nil {
		return fmt.Errorf("say what is published, for the audit: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if bytes.Equal(data, n.published) {
		return nil
	}
	if err := n.write(facts.PublishedFile, data); err != nil {
		return fmt.Errorf("say what is published, for the audit: %w", err)
	}
	n.published = data
	return nil
}

// write replaces a file.
func (n *RunFiles) write(name string, data []byte) error {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(n.dir, name), append(data, '\n'), 0o600, renameio.WithTempDir(n.dir))
}

// unwritten is what taints functions and is in no file of the node.
type unwritten struct {
	failing   map[pci.Address][]string
	attempted map[pci.Address]plan.Code
	hotPlug   bool
	window    uint64
}

// keep keeps what decides over a Publish for [Publisher.Published].
func (p *Publisher) keep(n *publish.Node, known *plan.Node) {
	failing := map[pci.Address][]string{}
	for a, h := range n.Health {
		for _, f := range h.Failing {
			failing[a] = append(failing[a], f.ID)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwritten = unwritten{failing, known.Attempted, known.HotPlug, known.HotPlugWindow}
}

// Published returns the functions of all devices that the latest Publish had, by
// address, each once, and what no file of the node says of them. The boot and the config
// are the caller's to add.
func (p *Publisher) Published() facts.Published {
	p.mu.Lock()
	defer p.mu.Unlock()
	functions := []pci.Address{}
	for name := range p.known {
		parts, err := device.ParseParts(name)
		if err != nil {
			continue // no name of ours
		}
		for _, part := range parts {
			functions = append(functions, part.Address)
		}
	}
	slices.SortFunc(functions, pci.Address.Compare)
	return facts.Published{
		NodeName: p.node, Devices: slices.Compact(functions),
		Failing: p.unwritten.failing, Attempted: p.unwritten.attempted,
		HotPlug: p.unwritten.hotPlug, HotPlugWindow: p.unwritten.window,
	}
}
