package plot_test

import (
	"os"
	"path/filepath"
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
	for _, want := range []string{`viewBox="-8 -8 299.46 157.73"`, `<rect x="-8" y="-8" width="299.46" height="157.73" style="fill:#FFFFFF" />`, "@media (prefers-color-scheme:dark)"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("want %q in\n%s", want, svg)
		}
	}
}

func TestSaveWithoutFolder(t *testing.T) {
	t.Setenv("KATA_VFIO_PLOTS", "")
	if file, err := plot.Save(gonum.New(), "name", vg.Centimeter, vg.Centimeter); file != "" || err != nil {
		t.Errorf("got %q, %v", file, err)
	}
}

// TestFiguresAreLegible: those that the documents show have room around them, and colors for dark pages.
func TestFiguresAreLegible(t *testing.T) {
	files, err := filepath.Glob("../figures/*.svg")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d figures, %v", len(files), err)
	}
	for _, file := range files {
		svg, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(svg), `viewBox="-8 -8 `) || !strings.Contains(string(svg), "@media (prefers-color-scheme:dark)") {
			t.Errorf("%s was not drawn by plot.Save: want room around it, and colors for dark pages", file)
		}
	}
}
