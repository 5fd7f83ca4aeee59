package podres

import (
	"slices"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/assignment"
)

// containerName is the entry that holds our devices. Kata plugs what any
// container lists into the one VM; which container sees which device is
// settled at their creation, by CDI.
const containerName = "kata-vfio"

// merge returns our devices and what is left of the kubelet's answer, which it
// changes. Each device comes once, also for a shim that reads DRA entries:
// none of them are ours any more. A shim fails the sandbox for an entry that is
// no CDI name, so those go, too.
func (s *Server) merge(
	pod podName, own []*assignment.Assignment, kubelet *podresourcesv1.PodResources,
) *podresourcesv1.PodResources {
	if kubelet == nil {
		kubelet = &podresourcesv1.PodResources{}
	}
	for _, c := range kubelet.GetContainers() {
		c.Devices = slices.DeleteFunc(c.GetDevices(), oursByResource)
		c.DynamicResources = foreignResources(c.GetDynamicResources())
	}
	s.dropUnresolved(kubelet)
	kubelet.Name, kubelet.Namespace = pod.name, pod.namespace
	if plugged := ownContainer(own); len(plugged.GetDevices()) > 0 {
		kubelet.Containers = slices.Insert(kubelet.GetContainers(), 0, plugged)
	}
	return kubelet
}

func ownContainer(own []*assignment.Assignment) *podresourcesv1.ContainerResources {
	c := &podresourcesv1.ContainerResources{Name: containerName}
	for _, a := range own {
		for _, d := range a.Devices {
			if d.Endpoint {
				continue // Kata finds it itself, and would plug it twice
			}
			c.Devices = append(c.Devices, &podresourcesv1.ContainerDevices{
				ResourceName: cdi.Kind, DeviceIds: []string{cdi.DeviceName(a.Claim.UID, d.Name)},
			})
		}
	}
	return c
}

// oursByResource reports whether a device plugin's entry has our name.
func oursByResource(d *podresourcesv1.ContainerDevices) bool { return d.GetResourceName() == cdi.Kind }

// foreignResources drops our devices from claims, and claims that had no
// others. A device of another driver keeps its own CDI names only.
func foreignResources(resources []*podresourcesv1.DynamicResource) []*podresourcesv1.DynamicResource {
	return slices.DeleteFunc(resources, func(r *podresourcesv1.DynamicResource) bool {
		had := len(r.GetClaimResources())
		r.ClaimResources = slices.DeleteFunc(r.GetClaimResources(), ours)
		for _, c := range r.GetClaimResources() {
			c.CdiDevices = slices.DeleteFunc(c.GetCdiDevices(), oursByCDI)
		}
		return had > 0 && len(r.GetClaimResources()) == 0
	})
}

// dropUnresolved drops the device plugins' entries that are no CDI names of the
// node. The specs are read only if there is an entry to look up.
func (s *Server) dropUnresolved(pod *podresourcesv1.PodResources) {
	var names []string
	for _, c := range pod.GetContainers() {
		for _, d := range c.GetDevices() {
			for _, id := range d.GetDeviceIds() {
				names = append(names, cdiName(d, id))
			}
		}
	}
	if len(names) == 0 {
		return
	}
	known := s.cfg.Resolver.Resolve(names)
	for _, c := range pod.GetContainers() {
		c.Devices = slices.DeleteFunc(c.GetDevices(), func(d *podresourcesv1.ContainerDevices) bool {
			d.DeviceIds = slices.DeleteFunc(d.GetDeviceIds(), func(id string) bool { return !known[cdiName(d, id)] })
			return len(d.GetDeviceIds()) == 0
		})
	}
}

// cdiName joins an entry as Kata does.
func cdiName(d *podresourcesv1.ContainerDevices, id string) string {
	return d.GetResourceName() + "=" + id
}
