package plot

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
)

// margin is the room around a figure, in points: gonum/plot draws titles and labels up to the edge.
const margin = 8

// style has the reader's own font, and other colors for those who prefer dark pages. Viewers that don't know it show the figure as gonum/plot
// drew it: black on white. What is too dark to be seen on a dark page is lighter there.
const style = `<style>
text{font-family:"Liberation Sans",Arial,sans-serif !important}
@media (prefers-color-scheme:dark){
[style*="fill:#FFFFFF"]{fill:#0d1117 !important}
[style*="stroke:#000000"]{stroke:#e6edf3 !important}
[style*="stroke:#808080"]{stroke:#9aa4af !important}
[style*="stroke:#1F5FA8"]{stroke:#58a6ff !important}
[style*="stroke:#C05028"]{stroke:#f0883e !important}
[style*="fill:#332288"]{fill:#8a7be0 !important}
[style*="fill:#117733"]{fill:#3fb950 !important}
[style*="fill:#882255"]{fill:#d2649a !important}
text{fill:#e6edf3}
}
</style>
`

var (
	size  = regexp.MustCompile(`<svg width="[0-9.]+pt" height="[0-9.]+pt" viewBox="0 0 ([0-9.]+) ([0-9.]+)"`)
	paper = regexp.MustCompile(`<path d="M0,0L[^"]*Z" style="fill:#FFFFFF" />`)
)

// legible returns a figure of gonum/plot with room around it, and with [style].
func legible(svg []byte) ([]byte, error) {
	found := size.FindSubmatch(svg)
	if found == nil || !paper.Match(svg) {
		return nil, fmt.Errorf("gonum/plot writes another SVG than version 0.16 did: %.300s", svg)
	}
	width, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		return nil, fmt.Errorf("width: %w", err)
	}
	height, err := strconv.ParseFloat(string(found[2]), 64)
	if err != nil {
		return nil, fmt.Errorf("height: %w", err)
	}
	width, height = width+2*margin, height+2*margin
	svg = bytes.Replace(svg, found[0], fmt.Appendf(nil, `<svg width="%gpt" height="%gpt" viewBox="%d %d %g %g"`, width, height, -margin, -margin, width, height), 1)
	first := paper.FindIndex(svg)
	rest := append(fmt.Appendf(nil, `<rect x="%d" y="%d" width="%g" height="%g" style="fill:#FFFFFF" />`, -margin, -margin, width, height), svg[first[1]:]...)
	svg = append(svg[:first[0]:first[0]], rest...)
	return bytes.Replace(svg, []byte("<g transform"), []byte(style+"<g transform"), 1), nil
}
