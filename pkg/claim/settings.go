package claim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// Origin is the author of a parameter.
type Origin string

// Origins. An administrator writes the class, a tenant the claim.
const (
	FromClass Origin = "class"
	FromClaim Origin = "claim"
)

// words returns the origin for a message, to follow the parameter's path.
func (o Origin) words() string {
	switch o {
	case FromClass:
		return " (from the DeviceClass)"
	case FromClaim:
		return " (from the claim)"
	default:
		return ""
	}
}

// settings are the opaque parameters of one claim for our driver.
type settings struct {
	// configs are the classes' entries, then the claim's, each in the claim's
	// order, which is the order of precedence: later wins.
	configs []resourceapi.DeviceAllocationConfiguration
	decoded map[*resourceapi.OpaqueDeviceConfiguration]parameters
}

// parameters are one decoded config entry.
type parameters struct {
	values v1alpha1.Parameters
	origin Origin
	// path is the entry's path in the claim.
	path string
}

// newSettings decodes every entry for the driver, even if its devices were not allocated, so that a mistake shows at
// once and not on the first node with such devices.
func newSettings(configs []resourceapi.DeviceAllocationConfiguration, driverName string) (*settings, error) {
	s := &settings{decoded: map[*resourceapi.OpaqueDeviceConfiguration]parameters{}}
	var claims []resourceapi.DeviceAllocationConfiguration
	for i := range configs {
		c := &configs[i]
		if c.Opaque == nil || c.Opaque.Driver != driverName {
			continue
		}
		p, err := decodeEntry(c)
		p.path = fmt.Sprintf("status.allocation.devices.config[%d]", i)
		if err != nil {
			return nil, fmt.Errorf("%s%s: %w", p.path, p.origin.words(), err)
		}
		s.decoded[c.Opaque] = p
		if p.origin == FromClass {
			s.configs = append(s.configs, *c)
		} else {
			claims = append(claims, *c)
		}
	}
	s.configs = append(s.configs, claims...)
	return s, nil
}

// decodeEntry decodes one entry and refuses parameters that its source may not set.
func decodeEntry(c *resourceapi.DeviceAllocationConfiguration) (parameters, error) {
	var p parameters
	switch c.Source {
	case resourceapi.AllocationConfigSourceClass:
		p.origin = FromClass
	case resourceapi.AllocationConfigSourceClaim:
		p.origin = FromClaim
	default:
		return p, fmt.Errorf("source %q is neither %s nor %s", c.Source,
			resourceapi.AllocationConfigSourceClass, resourceapi.AllocationConfigSourceClaim)
	}
	if c.Opaque.Parameters.Raw == nil {
		return p, errors.New("opaque.parameters is missing")
	}
	var err error
	if p.values, err = v1alpha1.DecodeParameters(c.Opaque.Parameters.Raw); err != nil {
		return p, err
	}
	// Each field counts, even if the class sets it to the same value: a tenant can't switch off a protection that the
	// class left at its default.
	if p.origin == FromClaim {
		return p, p.values.Weakens()
	}
	return p, nil
}

// resolve sets the parameters of d: the entries that apply to its request over the defaults, field by field.
func (s *settings) resolve(d *Device) error {
	result := resourceapi.DeviceRequestAllocationResult{Request: d.Request}
	class := v1alpha1.Parameters{VFIO: &v1alpha1.VFIOConfig{}, VF: &v1alpha1.VFConfig{}} // the class's entries alone
	// An entry for "request" also applies to each of the request's alternatives, "request/subrequest".
	for _, c := range resourceclaim.ConfigForResult(s.configs, result) {
		p := s.decoded[c.Opaque]
		if p.origin == FromClass {
			d.ClassParameters = append(d.ClassParameters, c.Opaque.Parameters.Raw)
		}
		switch {
		case p.values.VFIO != nil:
			if err := d.overlayVFIO(p, class.VFIO); err != nil {
				return fmt.Errorf("%s: %w", p.path, err)
			}
		case isVF(d):
			if err := d.overlayVF(p, class.VF); err != nil {
				return fmt.Errorf("%s: %w", p.path, err)
			}
		// Without requests, a VFConfig applies to the VFs among the claim's devices, and others ignore it.
		case len(c.Requests) > 0 && !d.isOfPair():
			return fmt.Errorf("%s: a VFConfig names request %s, which was given a device that is no VF; "+
				"name the requests of VFs", p.path, d.Request)
		}
	}
	return d.finish()
}

// overlayVFIO overlays a VFIOConfig on the device's parameters so far. Entries of the class come first, and an entry of
// the claim can't undo them.
func (d *Device) overlayVFIO(p parameters, class *v1alpha1.VFIOConfig) error {
	if p.origin == FromClass {
		class.Overlay(p.values.VFIO)
	} else if err := p.values.VFIO.Loosens(class); err != nil {
		return err
	}
	d.VFIO.Overlay(p.values.VFIO)
	d.note("vfio.", p.values.VFIO.Fields(), p.origin)
	return nil
}

// overlayVF overlays a VFConfig in the same way.
func (d *Device) overlayVF(p parameters, class *v1alpha1.VFConfig) error {
	if p.origin == FromClass {
		class.Overlay(p.values.VF)
	} else if err := p.values.VF.Loosens(class); err != nil {
		return err
	}
	if p.origin == FromClaim && p.values.VF.MaxTxRate != nil && class.MaxTxRate == nil {
		d.OwnMaxTxRate = true
	}
	if d.VF == nil {
		d.VF = &v1alpha1.VFConfig{}
	}
	d.VF.Overlay(p.values.VF)
	d.note("vf.", p.values.VF.Fields(), p.origin)
	return nil
}

// finish sets defaults and validates the combination of all entries.
func (d *Device) finish() error {
	d.VFIO.Default()
	if err := d.VFIO.Validate(); err != nil {
		return fmt.Errorf("%w (%s)", err, d.who("vfio."))
	}
	if d.VF == nil {
		return nil
	}
	d.VF.Default()
	if err := d.VF.Validate(); err != nil {
		return fmt.Errorf("%w (%s)", err, d.who("vf."))
	}
	return nil
}

// who lists the origins of the fields below a prefix: "backend by class, reset by claim".
func (d *Device) who(prefix string) string {
	var parts []string
	for path, origin := range d.Origins {
		if name, ok := strings.CutPrefix(path, prefix); ok {
			parts = append(parts, name+" is set by the "+string(origin))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// note records the origin of the fields.
func (d *Device) note(prefix string, fields []string, origin Origin) {
	for _, field := range fields {
		if d.Origins == nil {
			d.Origins = map[string]Origin{}
		}
		d.Origins[prefix+field] = origin
	}
}

// isOfPair reports whether the device is the GPU of a pair, whose VF the parameters are for.
func (d *Device) isOfPair() bool {
	parts, err := device.ParseParts(d.Pair)
	return err == nil && device.PartsType(parts) == device.PairType
}

func isVF(d *Device) bool {
	kind, _, err := device.ParseName(d.Name)
	return err == nil && kind == device.VFType
}
