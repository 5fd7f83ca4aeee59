package lint

import (
	"errors"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// parameters are the faults of the parameters for the plugin, as the plugin's reader finds them when it prepares a claim.
func parameters(s *subject) (faults []fault) {
	if class, ok := s.object.(*resourceapi.DeviceClass); ok {
		for i := range class.Spec.Config {
			faults = append(faults, opaque(fmt.Sprintf("spec.config[%d]", i), &class.Spec.Config[i].DeviceConfiguration, true)...)
		}
		return faults
	}
	if spec := s.devices(); spec != nil {
		for i := range spec.Config {
			faults = append(faults, opaque(fmt.Sprintf("%s.config[%d]", s.devicesPath(), i), &spec.Config[i].DeviceConfiguration, false)...)
		}
	}
	return faults
}

// opaque are the faults of one entry. Only an administrator's may weaken isolation.
func opaque(path string, c *resourceapi.DeviceConfiguration, admin bool) (faults []fault) {
	if c.Opaque == nil || c.Opaque.Driver != v1alpha1.DriverName {
		return nil
	}
	path += ".opaque.parameters"
	values, err := v1alpha1.DecodeParameters(c.Opaque.Parameters.Raw)
	if err == nil && !admin {
		err = values.Weakens()
	}
	if err == nil {
		return nil
	}
	if weakens, ok := errors.AsType[*v1alpha1.WeakensIsolationError](err); ok {
		name, _, _ := strings.Cut(weakens.Settings[0], ":")
		return []fault{{code: weakens.Code(), path: path + "." + name, text: err.Error()}}
	}
	if invalid, ok := errors.AsType[*v1alpha1.InvalidError](err); ok {
		for _, p := range invalid.Problems {
			faults = append(faults, fault{code: invalid.Code(), path: strings.TrimSuffix(path+"."+p.Path, "."), text: invalid.Kind + ": " + p.String()})
		}
		return faults
	}
	return []fault{{path: path, text: err.Error()}}
}
