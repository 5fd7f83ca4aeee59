package bench

import (
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// scheduling is one claim in one state of the nodes.
type scheduling struct {
	name  string
	claim *resourceapi.ResourceClaim
	// taken selects the devices of each node that others have.
	taken func(d *resourceapi.Device) bool
}

func schedulings() []scheduling {
	const root, node, nic = publish.AttrPCIeRoot, publish.AttrNUMANode, v1alpha1.DriverName + "/" + publish.AttrPCIeSwitch
	free := func(*resourceapi.Device) bool { return false }
	is := func(d *resourceapi.Device, kind string) bool { return attr(d, publish.AttrType) == kind }
	allVFs := func(d *resourceapi.Device) bool { return is(d, "vf") }
	oneRootsVFs := func(d *resourceapi.Device) bool { return is(d, "vf") && attr(d, root) == "pci0000:40" }
	threeGPUs := func(d *resourceapi.Device) bool { return is(d, "gpu") && attr(d, root) < "pci0000:40" }
	oneGPU := func(d *resourceapi.Device) bool { return is(d, "gpu") && attr(d, root) == "pci0000:40" }
	return []scheduling{
		{"1 GPU", asking(requestFor("gpu", "gpu", 1)), free},
		{"8 GPUs", asking(requestFor("gpu", "gpu", 8)), free},
		{"8 GPUs of 7", asking(requestFor("gpu", "gpu", 8)), oneGPU},
		{"1 VF", asking(requestFor("vf", "vf", 1)), free},
		{"GPU and VF of one root", together(root, 1), free},
		{"GPU and VF of one switch", together(nic, 1), free},
		{"GPU and VF, firstAvailable switch, root, NUMA", nearest(nic, root, node), free},
		{"the same, all VFs taken", nearest(nic, root, node), allVFs},
		{"8 GPUs and VFs, 8 constraints", together(root, 8), free},
		{"the same, the GPUs first", grouped(together(root, 8)), free},
		{"8 of them, one root's VFs taken", together(root, 8), oneRootsVFs},
		{"8 of them, one GPU taken", together(root, 8), oneGPU},
		{"6 of them of 5", together(root, 6), threeGPUs},
		{"1 pair", asking(requestFor("pair", "gpu-vf", 1)), free},
		{"8 pairs", asking(requestFor("pair", "gpu-vf", 8)), free},
		{"8 pairs of 7, a GPU is taken", asking(requestFor("pair", "gpu-vf", 8)), oneGPU},
		{"8 pairs, one root's VFs taken", asking(requestFor("pair", "gpu-vf", 8)), oneRootsVFs},
		{"6 pairs of 5", asking(requestFor("pair", "gpu-vf", 6)), threeGPUs},
	}
}

func requestFor(name, class string, count int64) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}}
}

func asking(requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Namespace: "default", UID: "uid"}}
	c.Spec.Devices.Requests = requests
	return c
}

func match(c *resourceapi.ResourceClaim, attribute resourceapi.QualifiedName, requests ...string) {
	name := resourceapi.FullyQualifiedName(attribute)
	c.Spec.Devices.Constraints = append(c.Spec.Devices.Constraints, resourceapi.DeviceConstraint{Requests: requests, MatchAttribute: &name})
}

// together asks for GPUs, each with a VF of the same attribute; each VF follows its GPU.
func together(attribute resourceapi.QualifiedName, n int) *resourceapi.ResourceClaim {
	c := asking()
	for i := range n {
		gpu, vf := fmt.Sprintf("gpu%d", i), fmt.Sprintf("vf%d", i)
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, requestFor(gpu, "gpu", 1), requestFor(vf, "vf", 1))
		match(c, attribute, gpu, vf)
	}
	return c
}

// grouped puts a claim's GPUs before its VFs.
func grouped(c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	slices.SortStableFunc(c.Spec.Devices.Requests, func(a, b resourceapi.DeviceRequest) int {
		return strings.Compare(a.Exactly.DeviceClassName, b.Exactly.DeviceClassName)
	})
	return c
}

// nearest asks for a GPU and a VF as near to it as there is one. The alternatives come first: the scheduler goes through
// all devices for each before it takes the next.
func nearest(attributes ...resourceapi.QualifiedName) *resourceapi.ResourceClaim {
	c := asking(resourceapi.DeviceRequest{Name: "gpu"}, requestFor("vf", "vf", 1))
	for i, a := range attributes {
		sub := resourceapi.DeviceSubRequest{
			Name: fmt.Sprintf("near%d", i), DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1,
		}
		c.Spec.Devices.Requests[0].FirstAvailable = append(c.Spec.Devices.Requests[0].FirstAvailable, sub)
		match(c, a, "vf", "gpu/"+sub.Name)
	}
	return c
}

// classes are the chart's DeviceClasses, by the types that they select.
type classes []string

func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	all := make([]*resourceapi.DeviceClass, len(c))
	for i, kind := range c {
		all[i] = &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: kind}}
		selects := fmt.Sprintf(`type.orValue("") == %q`, kind)
		if kind == "gpu-slice" {
			selects = `type.orValue("") == "gpuvf"`
		}
		if size, joined := strings.CutPrefix(kind, "gpu-x"); joined {
			selects = "fabricSize.orValue(0) == " + size
		}
		all[i].Spec.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
			`device.driver == %q && device.attributes[%[1]q].?`, v1alpha1.DriverName) + selects}}}
	}
	return all, nil
}

func (c classes) Get(name string) (*resourceapi.DeviceClass, error) {
	all, err := c.List()
	i := slices.Index(c, strings.TrimSuffix(name, "."+v1alpha1.DriverName))
	if err != nil || i < 0 {
		return nil, apierrors.NewNotFound(resourceapi.Resource("deviceclasses"), name)
	}
	return all[i], nil
}
