package audit_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/test/board"
)

func handlers(t *testing.T, tree *board.Tree, format string) string {
	t.Helper()
	fsys, s := tree.Read()
	defer func() { _ = fsys.Close() }()
	var out strings.Builder
	if err := audit.NewHandlers(facts.New(fsys, s)).Write(&out, format); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestHandlerIsShownWithKatasOwnNames(t *testing.T) {
	tree := board.Server(t)
	for format, words := range map[string][]string{
		"text": {"kata-gpu: Kata's go runtime, by containerd\n", "default_memory                8192 MiB", "cold_plug_vfio                root-port", "config.d/50-kata-gpu.toml"},
		"json": {`"name": "kata-gpu"`, `"memoryMiB": 8192`, `"socket": "/run/kata-vfio/pod-resources.sock"`},
		"yaml": {"name: kata-gpu", "coldPlug: root-port"},
	} {
		out := handlers(t, tree, format)
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("%s lacks %q:\n%s", format, word, out)
			}
		}
	}
	tree.AddToKata("=")
	if out := handlers(t, tree, "text"); !strings.Contains(out, "its settings are not known: /opt/kata") || strings.Contains(out, "8192") {
		t.Errorf("of settings that are not understood it says\n%s", out)
	}
}

func TestNodeWithoutKataSaysSo(t *testing.T) {
	tree := board.New(t)
	tree.Delete(board.ContainerdDropIn)
	if out := handlers(t, tree, "text"); out != "no runtime handler of this node runs Kata\n" {
		t.Errorf("it says %q", out)
	}
}
