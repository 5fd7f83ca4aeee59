package topology_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/topology"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func render(t *testing.T, inv *audit.Inventory) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := topology.WriteSVG(&b, topology.Arrange(inv)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestSVGGolden(t *testing.T) {
	for name, inv := range inventories(t) {
		t.Run(name, func(t *testing.T) { golden(t, name+".svg", render(t, inv)) })
	}
}

func TestDOTGolden(t *testing.T) {
	for name, inv := range inventories(t) {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := topology.WriteDOT(&b, inv); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".dot", b.Bytes())
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

func TestEveryFunctionIsDrawnOnce(t *testing.T) {
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
