//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
)

// readyFunctions are a device's functions. A device that its status does not call ready, isolated and reset is an error.
func readyFunctions(d resourcev1.AllocatedDeviceStatus) ([]string, error) {
	for _, condition := range []string{"Ready", "Isolated", "Reset"} {
		if !meta.IsStatusConditionTrue(d.Conditions, condition) {
			return nil, fmt.Errorf("%s of device %s is not true: %+v", condition, d.Device, d.Conditions)
		}
	}
	if d.Data == nil {
		return nil, fmt.Errorf("device %s has no data", d.Device)
	}
	var data dra.DeviceData
	if err := json.Unmarshal(d.Data.Raw, &data); err != nil {
		return nil, err
	}
	if !slices.Contains(data.Functions, data.Address) {
		return nil, fmt.Errorf("device %s is not among its functions: %+v", d.Device, data)
	}
	return data.Functions, nil
}
