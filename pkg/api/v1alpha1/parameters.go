package v1alpha1

// Parameters are the opaque parameters of one config entry: exactly one field
// is set.
type Parameters struct {
	VFIO *VFIOConfig
	VF   *VFConfig
}

// DecodeParameters reads the opaque parameters of a DeviceClass or a claim,
// of whichever kind they are, strictly and without defaults. Its error is an
// [InvalidError].
func DecodeParameters(raw []byte) (Parameters, error) {
	m, p := readMeta(raw, KindVFIOConfig, KindVFConfig)
	if err := p.err("parameters"); err != nil {
		return Parameters{}, err
	}
	if m.Kind == KindVFConfig {
		c, err := DecodeVF(raw)
		return Parameters{VF: c}, err
	}
	c, err := DecodeVFIO(raw)
	return Parameters{VFIO: c}, err
}

// Weakens returns a [WeakensIsolationError] that names the parameters which
// are not accepted from a claim, and nil when there is none.
func (p Parameters) Weakens() error {
	if p.VFIO != nil {
		return p.VFIO.Weakens()
	}
	if p.VF != nil {
		return p.VF.Weakens()
	}
	return nil
}
