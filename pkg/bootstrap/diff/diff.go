// Package diff tells how two versions of a small file differ, as diff -u does.
package diff

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// context is how many lines around a change are shown.
const context = 3

// maxCells bounds the work of the comparison; configuration files need far less.
const maxCells = 1 << 22

// edit is a line with what happens to it: ' ', '-' or '+'.
type edit struct {
	kind byte
	line string
}

// Unified returns the difference in unified form, empty where there is none. Names are
// those of the two versions; "/dev/null" is usual for one that is not there.
func Unified(beforeName, afterName string, before, after []byte) string {
	switch {
	case bytes.Equal(before, after):
		return ""
	case bytes.IndexByte(before, 0) >= 0 || bytes.IndexByte(after, 0) >= 0:
		return fmt.Sprintf("binary files %s and %s differ\n", beforeName, afterName)
	}
	edits := compare(lines(before), lines(after))
	var b strings.Builder
	fmt.Fprintf(&b, "--- %s\n+++ %s\n", beforeName, afterName)
	for start := 0; start < len(edits); {
		first := nextChange(edits, start)
		if first < 0 {
			break
		}
		end := hunkEnd(edits, first)
		writeHunk(&b, edits, max(first-context, start), end)
		start = end
	}
	return b.String()
}

// lines splits behind each line break. The last one may lack it.
func lines(text []byte) []string {
	all := strings.SplitAfter(string(text), "\n")
	if all[len(all)-1] == "" {
		all = all[:len(all)-1]
	}
	return all
}

// compare returns the edits that make b of a, by their longest common subsequence.
func compare(a, b []string) []edit {
	var edits []edit
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		edits, a, b = append(edits, edit{' ', a[0]}), a[1:], b[1:]
	}
	var tail []edit
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail, a, b = append(tail, edit{' ', a[len(a)-1]}), a[:len(a)-1], b[:len(b)-1]
	}
	edits = append(edits, middle(a, b)...)
	slices.Reverse(tail)
	return append(edits, tail...)
}

func middle(a, b []string) []edit {
	var edits []edit
	i, j := 0, 0
	if len(a)*len(b) <= maxCells {
		common := table(a, b)
		for i < len(a) && j < len(b) {
			switch {
			case a[i] == b[j]:
				edits = append(edits, edit{' ', a[i]})
				i, j = i+1, j+1
			case common[i+1][j] >= common[i][j+1]:
				edits = append(edits, edit{'-', a[i]})
				i++
			default:
				edits = append(edits, edit{'+', b[j]})
				j++
			}
		}
	}
	for ; i < len(a); i++ {
		edits = append(edits, edit{'-', a[i]})
	}
	for ; j < len(b); j++ {
		edits = append(edits, edit{'+', b[j]})
	}
	return edits
}

// table has at [i][j] how long the common subsequence of a[i:] and b[j:] is.
func table(a, b []string) [][]int {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i, line := range slices.Backward(a) {
		for j, other := range slices.Backward(b) {
			if line == other {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	return common
}

func nextChange(edits []edit, from int) int {
	for i := from; i < len(edits); i++ {
		if edits[i].kind != ' ' {
			return i
		}
	}
	return -1
}

// hunkEnd returns where the hunk with the change at first ends: changes that are near
// share one.
func hunkEnd(edits []edit, first int) int {
	last := first
	for i := first; i < len(edits) && i <= last+2*context; i++ {
		if edits[i].kind != ' ' {
			last = i
		}
	}
	return min(last+context+1, len(edits))
}

func writeHunk(b *strings.Builder, edits []edit, from, to int) {
	at := [2]int{1, 1}
	for _, e := range edits[:from] {
		count(&at, e)
	}
	var size [2]int
	for _, e := range edits[from:to] {
		count(&size, e)
	}
	for side := range at {
		if size[side] == 0 {
			at[side]-- // diff names the line before an empty range
		}
	}
	fmt.Fprintf(b, "@@ -%d,%d +%d,%d @@\n", at[0], size[0], at[1], size[1])
	for _, e := range edits[from:to] {
		fmt.Fprintf(b, "%c%s", e.kind, e.line)
		if !strings.HasSuffix(e.line, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
}

// count counts a line on the sides that have it.
func count(sides *[2]int, e edit) {
	if e.kind != '+' {
		sides[0]++
	}
	if e.kind != '-' {
		sides[1]++
	}
}
