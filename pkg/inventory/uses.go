package inventory

import "github.com/kata-vfio/kata-vfio/pkg/device"

// judgeUses finds out what on the node needs the functions of fresh now.
// Nothing is read that no function's children ask for: most functions have no
// children, and VFIO's never do.
func (s *scan) judgeUses(fresh []*device.Function) error {
	for _, f := range fresh {
		uses, err := s.usesOf(f)
		if err != nil {
			return err
		}
		f.Uses = append(f.Uses, uses...)
	}
	return nil
}

func (s *scan) usesOf(f *device.Function) (uses []device.Use, err error) {
	if len(f.Children.Net) > 0 {
		if s.network == nil {
			if s.network, err = readNetwork(s.fs); err != nil {
				return nil, err
			}
		}
		if uses, err = s.network.uses(f); err != nil {
			return nil, err
		}
	}
	if len(f.Children.Block) > 0 {
		if s.mounts == nil {
			if s.mounts, err = s.readMounts(); err != nil {
				return nil, err
			}
		}
		found, err := s.mounts.uses(f)
		if err != nil {
			return nil, err
		}
		uses = append(uses, found...)
	}
	if f.BootVGA {
		found, err := readConsole(s.fs)
		if err != nil {
			return nil, err
		}
		uses = append(uses, found.uses(f)...)
	}
	return uses, nil
}
