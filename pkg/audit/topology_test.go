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
