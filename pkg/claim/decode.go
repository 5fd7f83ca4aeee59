package claim

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Decode returns the devices that an allocated claim requests from the driver with the name. It ignores devices of
// other drivers. The same claim gives the same request, so it may be called again at any time.
//
// Errors are for the claim's owner. After [ErrNotAllocated] and [ErrNotOurs] there is nothing to do here.
// [v1alpha1.WeakensIsolationError] refuses a tenant's request for settings that only an administrator may grant, and
// [v1alpha1.InvalidError] names the problems of the parameters.
func Decode(c *resourceapi.ResourceClaim, driverName string) (*Request, error) {
	req, err := decode(c, driverName)
	if err != nil {
		return nil, fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return req, nil
}

func decode(c *resourceapi.ResourceClaim, driverName string) (*Request, error) {
	if err := checkIdentity(c); err != nil {
		return nil, err
	}
	if c.Status.Allocation == nil {
		return nil, ErrNotAllocated
	}
	pods, err := newPods(c.Status.ReservedFor)
	if err != nil {
		return nil, err
	}
	req := &Request{UID: string(c.UID), Namespace: c.Namespace, Name: c.Name, Pods: pods, NodeSelector: c.Status.Allocation.NodeSelector}
	if req.Devices, err = newDevices(c.Status.Allocation.Devices.Results, driverName); err != nil {
		return nil, err
	}
	if err := keepsRequests(c, driverName); err != nil {
		return nil, err
	}
	settings, err := newSettings(c.Status.Allocation.Devices.Config, driverName)
	if err != nil {
		return nil, err
	}
	for i := range req.Devices {
		d := &req.Devices[i]
		d.Class = findClass(&c.Spec.Devices, d.Request)
		if err := settings.resolve(d); err != nil {
			return nil, fmt.Errorf("device %s: %w", d.Name, err)
		}
	}
	return req, nil
}

// Allocated returns the functions that are allocated to a claim from the driver with the
// name, with their pools, and without parameters. A claim without an allocation is
// [ErrNotAllocated], one without a device of the driver [ErrNotOurs].
func Allocated(c *resourceapi.ResourceClaim, driverName string) ([]Device, error) {
	if c.Status.Allocation == nil {
		return nil, ErrNotAllocated
	}
	return newDevices(c.Status.Allocation.Devices.Results, driverName)
}

// findClass returns the DeviceClass of a request, also of "request/subrequest"; empty if the spec does not have the
// request. The API server keeps names of requests unique, and the spec is immutable.
func findClass(spec *resourceapi.DeviceClaim, request string) string {
	name, sub, isSub := strings.Cut(request, "/")
	for i := range spec.Requests {
		r := &spec.Requests[i]
		if r.Name != name {
			continue
		}
		if !isSub && r.Exactly != nil {
			return r.Exactly.DeviceClassName
		}
		for j := range r.FirstAvailable {
			if isSub && r.FirstAvailable[j].Name == sub {
				return r.FirstAvailable[j].DeviceClassName
			}
		}
	}
	return ""
}

// keepsRequests refuses parameters of DeviceClasses that name no requests if the claim has several classes: they would
// apply to all devices, and the last one would win. The allocators of Kubernetes 1.34.0 and 1.34.1 write such
// parameters (kubernetes/kubernetes#134789).
func keepsRequests(c *resourceapi.ResourceClaim, driverName string) error {
	classes := listClasses(&c.Spec.Devices)
	if len(classes) < 2 {
		return nil
	}
	for i, entry := range c.Status.Allocation.Devices.Config {
		if entry.Source == resourceapi.AllocationConfigSourceClass && len(entry.Requests) == 0 &&
			entry.Opaque != nil && entry.Opaque.Driver == driverName {
			return fmt.Errorf("status.allocation.devices.config[%d] is from a DeviceClass and names no requests, and the claim has requests of "+
				"DeviceClasses %s; update the scheduler, which lost them (kube-scheduler 1.34.0 and 1.34.1 do), or use a claim for each class",
				i, strings.Join(classes, ", "))
		}
	}
	return nil
}

// listClasses returns the DeviceClasses that a claim's requests name, alternatives included, sorted.
func listClasses(spec *resourceapi.DeviceClaim) []string {
	var classes []string
	for i := range spec.Requests {
		r := &spec.Requests[i]
		if r.Exactly != nil {
			classes = append(classes, r.Exactly.DeviceClassName)
		}
		for j := range r.FirstAvailable {
			classes = append(classes, r.FirstAvailable[j].DeviceClassName)
		}
	}
	slices.Sort(classes)
	return slices.Compact(classes)
}

// checkIdentity checks the claim's name, namespace and UID. The UID also names files and CDI devices, and a claim that
// is read from a file can contain any text there.
func checkIdentity(c *resourceapi.ResourceClaim) error {
	const most = 64 // a UUID has 36
	uid := string(c.UID)
	switch {
	case c.Name == "" || c.Namespace == "":
		return errors.New("metadata.name or metadata.namespace is missing")
	case uid == "":
		return errors.New("metadata.uid is missing; the API server sets it: use the output of kubectl get resourceclaim -o yaml")
	case len(uid) > most || strings.Trim(uid, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" || uid[0] == '-':
		return fmt.Errorf("metadata.uid %.80q is not a UID; want letters, digits and \"-\"", uid)
	}
	return nil
}

// The consumers of a claim in a PodGroup's spec.resourceClaims (KEP-5729).
const (
	podGroupAPI = "scheduling.k8s.io"
	podGroups   = "podgroups"
)

// IsPodGroup reports whether the consumer of a claim is a PodGroup instead of a pod.
func IsPodGroup(ref *resourceapi.ResourceClaimConsumerReference) bool {
	return ref.APIGroup == podGroupAPI && ref.Resource == podGroups
}

// newPods returns the consumers of a claim, which must be pods: a device belongs to one VM.
func newPods(consumers []resourceapi.ResourceClaimConsumerReference) ([]Pod, error) {
	var pods []Pod
	for i, ref := range consumers {
		if IsPodGroup(&ref) {
			return nil, &podGroupError{Group: ref.Name}
		}
		if ref.APIGroup != "" || ref.Resource != "pods" {
			return nil, fmt.Errorf("status.reservedFor[%d] is %s %q in API group %q; only pods can use a device of kata-vfio",
				i, ref.Resource, ref.Name, ref.APIGroup)
		}
		pods = append(pods, Pod{UID: string(ref.UID), Name: ref.Name})
	}
	return pods, nil
}

// newDevices returns the functions of our allocation results, in the claim's order.
func newDevices(results []resourceapi.DeviceRequestAllocationResult, driverName string) ([]Device, error) {
	var devices []Device
	seen := map[pci.Address]string{}
	for i := range results {
		if results[i].Driver != driverName {
			continue
		}
		functions, err := newFunctions(&results[i])
		if err != nil {
			return nil, fmt.Errorf("status.allocation.devices.results[%d]: %w", i, err)
		}
		for _, d := range functions {
			// A pair and one of its functions are different devices to the scheduler. Only the slice's counters keep it
			// from allocating both.
			if request, ok := seen[d.Address]; ok {
				return nil, fmt.Errorf("status.allocation.devices.results[%d]: %s is allocated twice, to requests %q and %q",
					i, d.Name, request, d.Request)
			}
			seen[d.Address] = d.Request
		}
		devices = append(devices, functions...)
	}
	if len(devices) == 0 {
		return nil, fmt.Errorf("%w (%s)", ErrNotOurs, driverName)
	}
	return devices, nil
}

// newFunctions reads one of our allocation results: a function, the two functions of a pair, or the GPUs of a partition.
func newFunctions(r *resourceapi.DeviceRequestAllocationResult) ([]Device, error) {
	parts, err := device.ParseParts(r.Device)
	if err != nil {
		return nil, err
	}
	if r.Request == "" || r.Pool == "" {
		return nil, fmt.Errorf("device %s: request or pool is missing", r.Device)
	}
	functions := make([]Device, len(parts))
	for i, p := range parts {
		if want := string(p.Type) + "-" + p.Address.Label(); p.Name != want {
			return nil, fmt.Errorf("device name %q: want it as ResourceSlices have it, %s", p.Name, want)
		}
		functions[i] = Device{
			Request: r.Request, Pool: r.Pool, Name: p.Name, Address: p.Address,
			AdminAccess: r.AdminAccess != nil && *r.AdminAccess,
		}
		if len(parts) > 1 {
			functions[i].Pair = r.Device
		}
	}
	return functions, nil
}
