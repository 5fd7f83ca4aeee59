package report_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// letter is the width of a letter in a drawing, at most.
const letter = 7

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTimelineLabelsEndWithinTheDrawing(t *testing.T) {
	p, _ := past(t)
	ticks := regexp.MustCompile(`<text class="small muted" x="(\d+)" y="14" text-anchor="(\w+)">([^<]+)</text>`).FindAllStringSubmatch(render(t, p), -1)
	if len(ticks) == 0 {
		t.Fatal("got no labels, want those of the axis")
	}
	for _, m := range ticks {
		end := number(t, m[1])
		if m[2] == "middle" {
			end += utf8.RuneCountInString(m[3]) * letter / 2
		}
		if end > 1000 {
			t.Errorf("label %q ends at %d, want at most 1000", m[3], end)
		}
	}
}

// TestLostTenancyIsNotDrawnToThePresent: another tenant has the function since, and nothing says that both have it. A stay without an end
// is not drawn beyond its bar.
func TestLostTenancyIsNotDrawnToThePresent(t *testing.T) {
	gpu, vmEnd := address("0000:13:00.0"), clock(1, 30)
	lost := func(name string, stays ...facts.Stay) report.Tenancy {
		return report.Tenancy{Device: gpu, Tenant: name, Claim: name + "/c", From: clock(1, 0), Lost: true, Ledger: &facts.PastTenancy{Stays: stays}}
	}
	ended := lost("ended", facts.Stay{From: clock(1, 10)})
	ended.Lost, ended.To = false, clock(2, 30)
	reset := lost("reset", facts.Stay{From: clock(1, 10), To: &vmEnd})
	reset.ResetAfter = &report.Reset{Method: "flr", At: clock(2, 0)}
	for name, c := range map[string]struct {
		tenancy report.Tenancy
		title   string
	}{
		"nothing is known":         {lost("nothing"), "nothing, nothing/c, from 2026-11-22 01:00:00, end not known"},
		"a VM that has no end":     {lost("open", facts.Stay{From: clock(1, 10)}), "open, open/c, from 2026-11-22 01:00:00, end not known"},
		"a VM that ended":          {lost("vm", facts.Stay{From: clock(1, 10), To: &vmEnd}), "vm, vm/c, from 2026-11-22 01:00:00, end not known"},
		"a reset":                  {reset, "reset, reset/c, from 2026-11-22 01:00:00, end not known"},
		"an end, and none of a VM": {ended, "ended, ended/c, from 2026-11-22 01:00:00 to 2026-11-22 02:30:00"},
	} {
		t.Run(name, func(t *testing.T) {
			p := samplePage()
			p.Tenancies = []report.Tenancy{c.tenancy, {Device: gpu, Tenant: "team-red", Claim: "team-red/train", From: clock(3, 0)}}
			page := render(t, p)
			next := barsOf(t, page, "team-red, team-red/train, from 2026-11-22 03:00:00")
			for _, bar := range barsOf(t, page, c.title) {
				if bar.end >= next[0].start {
					t.Errorf("a bar ends at %d, want it before %d, where the next tenant's starts", bar.end, next[0].start)
				}
			}
		})
	}
}

type extent struct{ start, end int }

// barsOf returns the bar of the title, and its stays.
func barsOf(t *testing.T, page, title string) []extent {
	t.Helper()
	_, group, found := strings.Cut(page, "<title>"+title+"</title>")
	if !found {
		t.Fatalf("no bar has the title %q", title)
	}
	group, _, _ = strings.Cut(group, "</g>")
	var bars []extent
	for _, m := range regexp.MustCompile(`<rect class="(?:tag|stay)" x="(\d+)" y="\d+" width="(\d+)"`).FindAllStringSubmatch(group, -1) {
		bars = append(bars, extent{number(t, m[1]), number(t, m[1]) + number(t, m[2])})
	}
	if len(bars) == 0 {
		t.Fatalf("the title %q has no bar", title)
	}
	return bars
}

func TestResetsDoNotCoverTimelineLabels(t *testing.T) {
	p, _ := past(t)
	page := render(t, p)
	labels := regexp.MustCompile(`<text class="body" x="([1-9]\d*)" y="(\d+)">([^<]+)</text>`).FindAllStringSubmatch(page, -1)
	resets := regexp.MustCompile(`class="reset(?:" cx="(\d+)" cy="(\d+)"| unproven" d="M(\d+) (\d+)m)`).FindAllStringSubmatch(page, -1)
	if len(labels) == 0 || len(resets) == 0 {
		t.Fatalf("got %d labels and %d resets, want some of both", len(labels), len(resets))
	}
	const radius, baseline = 6, 4 // a reset's, and how far a label's line is below its row's middle
	for _, l := range labels {
		start, row := number(t, l[1]), number(t, l[2])-baseline
		end := start + utf8.RuneCountInString(l[3])*letter
		for _, r := range resets {
			if x := number(t, r[1]+r[3]); number(t, r[2]+r[4]) == row && x+radius > start && x-radius < end {
				t.Errorf("the reset at %d covers %q, which is from %d to %d", x, l[3], start, end)
			}
		}
	}
}
