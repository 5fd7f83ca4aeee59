package plot_test

import (
	"os"
	"strings"
	"testing"

	gonum "gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"

	"github.com/kata-vfio/kata-vfio/test/bench/plot"
)

func TestSave(t *testing.T) {
	t.Setenv("KATA_VFIO_PLOTS", t.TempDir()+"/plots")
	p := gonum.New()
	p.Title.Text = "A title"
	file, err := plot.Save(p, "name", 10*vg.Centimeter, 5*vg.Centimeter)
	if err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(svg), "A title") {
		t.Errorf("%s has no title:\n%s", file, svg)
	}
}

func TestSaveWithoutFolder(t *testing.T) {
	t.Setenv("KATA_VFIO_PLOTS", "")
	if file, err := plot.Save(gonum.New(), "name", vg.Centimeter, vg.Centimeter); file != "" || err != nil {
		t.Errorf("got %q, %v", file, err)
	}
}
