package nodeconfig_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
)

// TestThePackagedConfigSaysNothing: the file that packages install changes nothing for a node that had none.
func TestThePackagedConfigSaysNothing(t *testing.T) {
	text, err := os.ReadFile("../../deploy/packages/node.yaml")
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := v1alpha1.DecodeNodeConfig(text)
	if err != nil {
		t.Fatal(err)
	}
	want := nodeconfig.Default()
	want.TypeMeta = cfg.TypeMeta
	if diff := cmp.Diff(want, cfg); diff != "" {
		t.Errorf("it differs from no file (-none +file):\n%s", diff)
	}
	_, examples, _ := strings.Cut(string(text), "kind: NodeConfig\n")
	examples = strings.TrimPrefix(strings.ReplaceAll("\n"+examples, "\n#", "\n"), "\n")
	cfg, err = v1alpha1.DecodeNodeConfig(append(text, examples...))
	if err != nil || len(cfg.Devices) != 2 || len(cfg.VirtualFunctions) != 1 {
		t.Errorf("its examples say %+v, %v", cfg, err)
	}
}
