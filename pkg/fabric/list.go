package fabric

import (
	"fmt"
	"strings"
)

// ListError says why a list from Fabric Manager can't be right. Nothing of such a list is used.
type ListError struct{ Text string }

func (e *ListError) Error() string {
	return "Fabric Manager's list of partitions can't be right: " + e.Text
}

func listError(format string, args ...any) error {
	return &ListError{Text: fmt.Sprintf(format, args...)}
}

// Check refuses a list that exceeds the API's limits, that has a number or a set of GPUs twice, that has a GPU twice in a partition, or
// that has two active partitions with the same GPU.
func (l List) Check() error {
	if len(l) > MaxPartitions {
		return listError("it has %d partitions, and the API has room for %d", len(l), MaxPartitions)
	}
	ids, sets, held := map[int]bool{}, map[string]int{}, map[int]int{}
	for i := range l {
		p := &l[i]
		if err := p.check(); err != nil {
			return err
		}
		set := joinModules(p.Modules())
		if ids[p.ID] {
			return listError("it has partition %d twice", p.ID)
		}
		if other, twice := sets[set]; twice {
			return listError("partitions %d and %d have the same GPUs (modules %s)", other, p.ID, set)
		}
		ids[p.ID], sets[set] = true, p.ID
		for _, g := range p.GPUs {
			if other, twice := held[g.Module]; twice && p.Active {
				return listError("partitions %d and %d are active, and both have module %d", other, p.ID, g.Module)
			}
			if p.Active {
				held[g.Module] = p.ID
			}
		}
	}
	return nil
}

// check refuses a partition that is impossible by itself.
func (p *Partition) check() error {
	if p.ID < 0 || len(p.GPUs) == 0 || len(p.GPUs) > MaxGPUs {
		return listError("partition %d has %d GPUs, and the API has room for 1 to %d", p.ID, len(p.GPUs), MaxGPUs)
	}
	seen := map[int]bool{}
	for _, g := range p.GPUs {
		if seen[g.Module] {
			return listError("partition %d has module %d twice", p.ID, g.Module)
		}
		if g.Module < 0 || g.Module > maxModule {
			return listError("partition %d has module %d", p.ID, g.Module)
		}
		if !isText(g.UUID, mostUUID) || !isText(g.Address, mostAddress) || min(g.Links, g.MaxLinks, g.LineRate) < 0 {
			return listError("partition %d has values of module %d that the API can't have", p.ID, g.Module)
		}
		seen[g.Module] = true
	}
	return nil
}

// The lengths of texts in the API (FM_UUID_BUFFER_SIZE and FM_DEVICE_PCI_BUS_ID_BUFFER_SIZE).
const (
	mostUUID    = 80
	mostAddress = 32
)

// isText reports whether a text has at most most bytes, all of them printable ASCII characters: it is stored, and shown on terminals.
func isText(text string, most int) bool {
	return len(text) <= most && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
}

// maxModule is the highest plausible place on a board: A100 boards go to 16.
const maxModule = 255
