package link

import "fmt"

// Connect enters what is true of VFs in switchdev mode, with the ports of the
// PF's eswitch. VLANs, spoof check and
// trust are none of the PF's there: drivers refuse to change them, and report
// what was in legacy mode (mlx5) or what does not hold (ice says that it checks
// the sender and has switched that off, ice_vsi_ctx_clear_antispoof).
func (l *Link) Connect(ports []Port) error {
	for i := range l.VFs {
		vf := &l.VFs[i]
		vf.Settings.VLAN, vf.Settings.SpoofCheck, vf.Settings.Trust = nil, nil, nil
		for _, port := range ports {
			if port.VF != i {
				continue
			}
			if vf.Port != nil {
				return fmt.Errorf("%s has two ports for VF %d (%s, %s), and which one is its own is not known", l.Name, i, vf.Port.Representor, port.Representor)
			}
			vf.Port = &port
			if port.MAC != "" {
				vf.Settings.MAC = port.MAC
			}
		}
	}
	return nil
}
