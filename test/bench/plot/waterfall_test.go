package plot_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot/vg"

	"github.com/kata-vfio/kata-vfio/test/bench/plot"
)

func TestWaterfallShowsRowsAndPhases(t *testing.T) {
	t.Setenv("KATA_VFIO_PLOTS", t.TempDir())
	bars := []plot.Bar{
		{Row: "first", Phase: "scan", End: 10 * time.Millisecond},
		{Row: "first", Phase: "bind", Start: 10 * time.Millisecond, End: 200 * time.Millisecond},
		{Row: "second", Phase: "scan", End: time.Microsecond}, // too short to see
	}
	file, err := plot.Save(plot.Waterfall("Two claims", 18*vg.Centimeter, bars), "two", 18*vg.Centimeter, plot.WaterfallHeight(bars))
	if err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Two claims", "milliseconds", ">first<", ">second<", ">scan<", ">bind<"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("%q is missing", want)
		}
	}
	// The colors of the first two phases, for each bar and in the legend.
	for color, want := range map[string]int{"fill:#332288": 3, "fill:#88CCEE": 2} {
		if got := strings.Count(string(svg), `style="`+color); got != want {
			t.Errorf("%d shapes have %q, want %d", got, color, want)
		}
	}
}

func TestWaterfallOfLongTimesIsInSeconds(t *testing.T) {
	long := []plot.Bar{{Row: "vm", Phase: "boot", End: time.Minute}}
	if p := plot.Waterfall("", 18*vg.Centimeter, long); p.X.Label.Text != "seconds" || p.X.Max < 60 || p.X.Max > 120 {
		t.Errorf("the axis has %s up to %v", p.X.Label.Text, p.X.Max)
	}
}

func TestWaterfallGrowsWithRows(t *testing.T) {
	var few, many []plot.Bar
	for i := range 64 {
		bar := plot.Bar{Row: string(rune('a' + i)), Phase: "bind", End: time.Second}
		if many = append(many, bar); i < 2 {
			few = append(few, bar)
		}
	}
	if plot.WaterfallHeight(few) >= plot.WaterfallHeight(many) {
		t.Error("64 rows are not higher than two")
	}
}
