package report_test

import (
	"regexp"
	"strconv"
	"testing"
	"unicode/utf8"
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
