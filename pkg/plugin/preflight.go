package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// Candidate is a device that the node would publish. Preflight makes a plan for it without a claim, and changes nothing.
type Candidate struct {
	Pool   string
	Device resourceapi.Device
}

// Candidates returns the devices that the node would publish if no claim had a device, sorted by name. Their taints follow from known: a
// failed check of the audit taints a device only if known has [plan.Node.Failing].
func Candidates(node string, known *plan.Node) []Candidate {
	n := &publish.Node{Name: node, Snapshot: known.Snapshot, Selection: known.Selection, Assessments: map[pci.Address]plan.Assessment{}}
	assessor := plan.NewAssessor(*known)
	for _, f := range known.Selection.Ours() {
		n.Assessments[f.Address] = assessor.Assess(f)
	}
	var all []Candidate
	for pool, content := range publish.Pools(n) {
		for _, slice := range content.Slices {
			for i := range slice.Devices {
				all = append(all, Candidate{Pool: pool, Device: slice.Devices[i]})
			}
		}
	}
	slices.SortFunc(all, func(a, b Candidate) int { return strings.Compare(a.Device.Name, b.Device.Name) })
	return all
}

// FindCandidate returns the candidate with the device name or address in name. An address means the pair of a function only if the function
// is not published alone. A function that the node does not publish is a candidate too; its plan then says why it is refused. It is an
// error if the node has no such function, or if it is a bridge.
func FindCandidate(node, name string, all []Candidate, snap *device.Snapshot) (Candidate, error) {
	for _, c := range all {
		if c.Device.Name == name {
			return c, nil
		}
	}
	address, err := parseDevice(name)
	if err != nil {
		return Candidate{}, err
	}
	f, ok := snap.Function(address)
	if !ok {
		return Candidate{}, fmt.Errorf("the node has no PCI function %s: `lspci -D` lists the functions", address)
	}
	if f.Type == device.Bridge {
		return Candidate{}, fmt.Errorf("%s is a bridge: no claim can get it; `kata-vfio-audit devices` lists the functions that claims can", address)
	}
	pair := slices.IndexFunc(all, func(c Candidate) bool { return c.has(address) })
	for _, c := range all {
		if c.Device.Name == f.Name() {
			return c, nil
		}
	}
	if pair >= 0 {
		return all[pair], nil
	}
	return Candidate{Pool: device.NodePool(node), Device: resourceapi.Device{Name: f.Name()}}, nil
}

// parseDevice parses an address, "0000:3b:00.0" or "3b:00.0", or extracts it from a device name.
func parseDevice(name string) (pci.Address, error) {
	if _, address, err := device.ParseName(name); err == nil {
		return address, nil
	}
	long := name
	if strings.Count(name, ":") == 1 {
		// lspci leaves out the domain where all are 0000.
		long = "0000:" + name
	}
	address, err := pci.ParseAddress(long)
	if err != nil {
		return address, fmt.Errorf("%q is neither a PCI address (0000:3b:00.0) nor a device name (gpu-0000-3b-00-0)", name)
	}
	return address, nil
}

// has reports whether the function belongs to the device.
func (c *Candidate) has(a pci.Address) bool {
	parts, err := device.ParseParts(c.Device.Name)
	return err == nil && slices.ContainsFunc(parts, func(p device.Part) bool { return p.Address == a })
}

// SelectCandidates returns the devices that all selectors of a class select, evaluated by the scheduler's CEL library. It is an error if a
// selector fails for one device. The scheduler does the same, and then schedules no pod with the class.
func SelectCandidates(ctx context.Context, class *resourceapi.DeviceClass, all []Candidate) ([]Candidate, error) {
	selected := slices.Clone(all)
	compiler := cel.GetCompiler(cel.Features{})
	for i, selector := range class.Spec.Selectors {
		if selector.CEL == nil {
			return nil, fmt.Errorf("DeviceClass %s: spec.selectors[%d] has no cel expression", class.Name, i)
		}
		compiled := compiler.CompileCELExpression(selector.CEL.Expression, cel.Options{})
		if compiled.Error != nil {
			return nil, fmt.Errorf("DeviceClass %s: compile spec.selectors[%d].cel.expression: %w", class.Name, i, compiled.Error)
		}
		var failed error
		selected = slices.DeleteFunc(selected, func(c Candidate) bool {
			matches, _, err := compiled.DeviceMatches(ctx, cel.Device{Driver: v1alpha1.DriverName, Attributes: c.Device.Attributes, Capacity: c.Device.Capacity})
			if err != nil && failed == nil {
				failed = fmt.Errorf("DeviceClass %s: spec.selectors[%d] fails for device %s: %w", class.Name, i, c.Device.Name, cel.EnhanceRuntimeError(err))
			}
			return !matches
		})
		if failed != nil {
			return nil, failed
		}
	}
	return selected, nil
}

// Namespace and name of the claim that preflight plans with.
const (
	preflightNamespace = "preflight"
	preflightName      = "plan"
)

// PreflightRequest returns the request that the plugin would get if the scheduler allocated the devices to one claim, with a request of the
// claim for each device. The parameters are those of the class, or the defaults if class is nil.
func PreflightRequest(devices []Candidate, class *resourceapi.DeviceClass) (*claim.Request, error) {
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: preflightNamespace, Name: preflightName, UID: preflightName}}
	allocation := &resourceapi.AllocationResult{}
	for i := range devices {
		request := fmt.Sprintf("device-%d", i)
		exactly := &resourceapi.ExactDeviceRequest{}
		if class != nil {
			exactly.DeviceClassName = class.Name
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{Name: request, Exactly: exactly})
		allocation.Devices.Results = append(allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: request, Driver: v1alpha1.DriverName, Pool: devices[i].Pool, Device: devices[i].Device.Name,
		})
	}
	if class != nil {
		for _, config := range class.Spec.Config {
			allocation.Devices.Config = append(allocation.Devices.Config, resourceapi.DeviceAllocationConfiguration{
				Source: resourceapi.AllocationConfigSourceClass, DeviceConfiguration: config.DeviceConfiguration,
			})
		}
	}
	c.Status.Allocation = allocation
	return claim.Decode(c, v1alpha1.DriverName)
}
