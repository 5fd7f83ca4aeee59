package fabric

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// ParseModules reads the modules of all GPUs from the output of `nvidia-smi -q`. It is an error if a GPU has no module: a map of the other
// GPUs would describe another board.
func ParseModules(output string) ([]Place, error) {
	var places []Place
	module := -1
	end := func() error {
		if len(places) > 0 && module < 0 {
			return fmt.Errorf("GPU %s has no Module ID", places[len(places)-1].Address)
		}
		return nil
	}
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, " \r\n")
		if bus, ok := strings.CutPrefix(line, "GPU "); ok {
			if err := end(); err != nil {
				return nil, err
			}
			a, err := pci.ParseAddress(strings.ToLower(bus))
			if err != nil {
				return nil, fmt.Errorf("the section %q has no PCI address: %w", line, err)
			}
			places, module = append(places, Place{Address: a}), -1
			continue
		}
		// Only fields with an indent of four spaces belong to the GPU itself: its sections have other fields of the same names.
		key, value, ok := strings.Cut(line, ":")
		key, ofGPU := strings.CutPrefix(strings.TrimRight(key, " "), "    ")
		if !ok || !ofGPU || len(places) == 0 {
			continue
		}
		p := &places[len(places)-1]
		switch value = strings.TrimSpace(value); key {
		case "Module ID":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("GPU %s has Module ID %q", p.Address, value)
			}
			p.Module, module = n, n
		case "GPU UUID":
			p.UUID = value
		}
	}
	if len(places) == 0 {
		return nil, fmt.Errorf("it lists no GPU")
	}
	return places, end()
}
