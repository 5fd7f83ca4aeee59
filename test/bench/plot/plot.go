// Package plot draws the figures of the benchmarks.
package plot

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// Save draws p as name.svg, width by height, in the folder that KATA_VFIO_PLOTS names, and returns the file. Without that
// variable it draws nothing and returns "".
func Save(p *plot.Plot, name string, width, height vg.Length) (string, error) {
	folder := os.Getenv("KATA_VFIO_PLOTS")
	if folder == "" {
		return "", nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", fmt.Errorf("create the folder of the plots: %w", err)
	}
	file := filepath.Join(folder, name+".svg")
	drawn, err := p.WriterTo(width, height, "svg")
	if err != nil {
		return "", fmt.Errorf("draw %s: %w", name, err)
	}
	var svg bytes.Buffer
	if _, err := drawn.WriteTo(&svg); err != nil {
		return "", fmt.Errorf("draw %s: %w", name, err)
	}
	shown, err := legible(svg.Bytes())
	if err != nil {
		return "", fmt.Errorf("draw %s: %w", name, err)
	}
	if err := os.WriteFile(file, shown, 0o644); err != nil {
		return "", fmt.Errorf("write the figure: %w", err)
	}
	return file, nil
}
