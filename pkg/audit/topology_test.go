package audit_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

func render(t *testing.T, inv *audit.Inventory) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := audit.WriteSVG(&b, audit.Arrange(inv, audit.Folded)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSVGGolden(t *testing.T) {
	for name, inv := range inventories(t) {
		t.Run(name, func(t *testing.T) { golden.Compare(t, "topology-"+name+".svg", string(render(t, inv))) })
	}
}

func TestDOTGolden(t *testing.T) {
	for name, inv := range inventories(t) {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := audit.WriteDOT(&b, inv, audit.Folded); err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, "topology-"+name+".dot", b.String())
		})
	}
}

func TestTreeGolden(t *testing.T) {
	for name, inv := range inventories(t) {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := output.WriteTree(&b, audit.Tree(inv, audit.Folded), 0, false); err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, "topology-"+name+".txt", b.String())
		})
	}
}

func TestSVGIsWellFormedAndSelfContained(t *testing.T) {
	outside := regexp.MustCompile(`(href|src)=|url\(|@import|<script|<image`)
	for name, inv := range inventories(t) {
		t.Run(name, func(t *testing.T) {
			text := render(t, inv)
			dec := xml.NewDecoder(bytes.NewReader(text))
			for {
				_, err := dec.Token()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if found := outside.Find(text); found != nil {
				t.Errorf("refers to something outside itself: %s", found)
			}
		})
	}
}

func TestTopologyDrawsEachFunctionOnce(t *testing.T) {
	for name, inv := range inventories(t) {
		t.Run(name, func(t *testing.T) {
			text := string(render(t, inv))
			for i := range inv.Devices {
				id := `id="f` + inv.Devices[i].Address.Label() + `"`
				if n := strings.Count(text, id); n != 1 {
					t.Errorf("%s is drawn %d times", inv.Devices[i].Address, n)
				}
			}
		})
	}
}

// TestVFsOfOneGroup: VFs without ACS above them share one group, which is not a range.
func TestVFsOfOneGroup(t *testing.T) {
	m := newMachine()
	port := m.port("0000:20:00.0", "pci0000:20", 0, pci.RootPort, nil)
	pf := m.add("0000:21:00.0", "pci0000:20", 0, 0x020000, "NIC", with("igb", below(port)))
	m.vfs(pf, pf.Bus+1, 4, "igbvf")
	var vfs []pci.Address
	for i := range m.s.Functions {
		if m.s.Functions[i].VF != nil {
			vfs = append(vfs, m.s.Functions[i].Address)
		}
	}
	m.join(vfs...)
	var svg strings.Builder
	if err := audit.WriteSVG(&svg, audit.Arrange(m.inventory(), audit.Everything)); err != nil {
		t.Fatal(err)
	}
	if want := "4 of 8 VFs in one group (g2)"; !strings.Contains(svg.String(), want) {
		t.Errorf("the drawing lacks %q:\n%s", want, svg.String())
	}
}
