package vendordriver

import (
	"context"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// The driver is also a plugin for a kubelet: kubeletplugin.Start serves it.
var _ kubeletplugin.DRAPlugin = (*Driver)(nil)

// PrepareResourceClaims implements [kubeletplugin.DRAPlugin]. The devices have no CDI names: their containers see nothing.
func (d *Driver) PrepareResourceClaims(ctx context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	results := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range claims {
		result := kubeletplugin.PrepareResult{Err: d.Prepare(ctx, c)}
		if result.Err == nil {
			for _, r := range c.Status.Allocation.Devices.Results {
				if r.Driver == Name {
					result.Devices = append(result.Devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device})
				}
			}
		}
		results[c.UID] = result
	}
	return results, nil
}

// UnprepareResourceClaims implements [kubeletplugin.DRAPlugin].
func (d *Driver) UnprepareResourceClaims(ctx context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	errs := map[types.UID]error{}
	for _, c := range claims {
		errs[c.UID] = d.Unprepare(ctx, c.UID)
	}
	return errs, nil
}

// WatchHealthStatus implements [kubeletplugin.DRAPlugin]. It reports nothing until ctx ends.
func (d *Driver) WatchHealthStatus(ctx context.Context, _ chan<- kubeletplugin.DeviceHealthReport) error {
	<-ctx.Done()
	return ctx.Err()
}

// HandleError implements [kubeletplugin.DRAPlugin]. The caller sees that nothing is published.
func (d *Driver) HandleError(context.Context, error, string) {}
