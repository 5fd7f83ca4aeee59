package podres

import (
	"slices"
	"strings"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/assignment"
)

// namedClaim is a claim with devices of ours that the kubelet says a pod has.
type namedClaim struct {
	namespace, name string
	// cdi are the CDI names of its devices; they hold the claim's UID.
	cdi []string
	// devices are its devices of ours by pool and name, as they were prepared.
	devices []poolDevice
}

// poolDevice is a device as ResourceSlices name it.
type poolDevice struct{ pool, name string }

// is reports whether the assignment is of this very claim: the same name, by the CDI names
// the same UID, and the same devices from the same pools.
func (c *namedClaim) is(a *assignment.Assignment) bool {
	return c.namespace == a.Claim.Namespace && c.name == a.Claim.Name &&
		!slices.ContainsFunc(c.cdi, func(name string) bool {
			return !slices.ContainsFunc(a.Devices, func(d assignment.Device) bool { return d.CDI == name })
		}) &&
		!slices.ContainsFunc(c.devices, func(named poolDevice) bool {
			return !slices.ContainsFunc(a.Devices, func(d assignment.Device) bool { return poolDevice{d.Pool, d.Published} == named })
		})
}

// namedClaims returns the claims with devices of ours, once for each container
// that has them.
func namedClaims(pod *podresourcesv1.PodResources) []*namedClaim {
	var claims []*namedClaim
	for _, container := range pod.GetContainers() {
		for _, dynamic := range container.GetDynamicResources() {
			if slices.ContainsFunc(dynamic.GetClaimResources(), ours) {
				claims = append(claims, &namedClaim{
					namespace: dynamic.GetClaimNamespace(), name: dynamic.GetClaimName(), cdi: cdiNames(dynamic), devices: devicesNamed(dynamic),
				})
			}
		}
	}
	return claims
}

// cdiNames returns those of our devices, some more than once: in a claim's n-th
// device the kubelet (up to 1.37) repeats the names of all before it. Names of
// metadata mounts ("kata-vfio.dev/metadata=") are not of their kind.
func cdiNames(dynamic *podresourcesv1.DynamicResource) []string {
	var names []string
	for _, resource := range dynamic.GetClaimResources() {
		for _, device := range resource.GetCdiDevices() {
			if oursByCDI(device) {
				names = append(names, device.GetName())
			}
		}
	}
	return names
}

// devicesNamed returns our devices by pool and name.
func devicesNamed(dynamic *podresourcesv1.DynamicResource) []poolDevice {
	var devices []poolDevice
	for _, r := range dynamic.GetClaimResources() {
		if ours(r) {
			devices = append(devices, poolDevice{r.GetPoolName(), r.GetDeviceName()})
		}
	}
	return devices
}

// ours reports whether a claim's device is our driver's.
func ours(r *podresourcesv1.ClaimResource) bool { return r.GetDriverName() == v1alpha1.DriverName }

// oursByCDI reports whether a CDI name is of our devices' kind.
func oursByCDI(d *podresourcesv1.CDIDevice) bool { return strings.HasPrefix(d.GetName(), cdi.Kind+"=") }
