package dra

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// allocateAgain is what to do about an allocation that its DeviceClass no longer
// stands for.
const allocateAgain = "delete the pod, and the claim if no template made it, and create them again"

// admitClasses admits a claim whose devices come from DeviceClasses that are
// granted to its namespace. A class is the only place where parameters that
// weaken isolation are accepted, so whoever may name it has what it says.
func (g *Gate) admitClasses(ctx context.Context, req *claim.Request) error {
	classes := map[string]*resourceapi.DeviceClass{}
	for i := range req.Devices {
		d := &req.Devices[i]
		if d.Class == "" {
			return g.refuse(req, ClassUnknown,
				fmt.Sprintf("device %s is allocated to request %s, which the claim's spec does not have, so its DeviceClass is unknown", d.Name, d.Request), allocateAgain)
		}
		if classes[d.Class] == nil {
			class, err := g.class(ctx, req, d)
			if err != nil {
				return err
			}
			classes[d.Class] = class
		}
		if err := g.admitClass(req, d, classes[d.Class]); err != nil {
			return err
		}
	}
	return nil
}

// class asks the API server for the DeviceClass of a device.
func (g *Gate) class(ctx context.Context, req *claim.Request, d *claim.Device) (*resourceapi.DeviceClass, error) {
	var class *resourceapi.DeviceClass
	err := insist(ctx, func(ctx context.Context) (err error) {
		class, err = g.Client.ResourceV1().DeviceClasses().Get(ctx, d.Class, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil, g.refuse(req, ClassGone,
			fmt.Sprintf("DeviceClass %s of request %s was deleted after device %s was allocated by it", d.Class, d.Request, d.Name),
			"name a DeviceClass that exists; then "+allocateAgain)
	case err != nil:
		return nil, fmt.Errorf("claim %s/%s: look at DeviceClass %s: %w", req.Namespace, req.Name, d.Class, err)
	}
	return class, nil
}

// admitClass holds one device against its DeviceClass as it is now: the class may
// have been changed since the scheduler copied its parameters.
func (g *Gate) admitClass(req *claim.Request, d *claim.Device, class *resourceapi.DeviceClass) error {
	if !v1alpha1.Grants(class.Annotations, req.Namespace) {
		return g.refuse(req, ClassNotGranted,
			fmt.Sprintf("DeviceClass %s of request %s is not granted to namespace %s, so device %s is not either", d.Class, d.Request, req.Namespace, d.Name),
			fmt.Sprintf("name a class that is, such as gpu.%s; or have the cluster's admin add the namespace to the class's annotation %s",
				v1alpha1.DriverName, v1alpha1.AnnotationNamespaces))
	}
	if !slices.EqualFunc(d.ClassParameters, parametersOf(class), sameJSON) {
		return g.refuse(req, ClassChanged,
			fmt.Sprintf("DeviceClass %s of request %s has other parameters now than when device %s was allocated by it", d.Class, d.Request, d.Name),
			allocateAgain)
	}
	if kind, _, err := device.ParseName(d.Name); err == nil && kind == device.VFType && !d.VF.SaysSegment() {
		return g.refuse(req, NoVLAN,
			fmt.Sprintf("VF %s would be in no VLAN, beside whatever else its PF's network has, and DeviceClass %s does not allow that", d.Name, d.Class),
			"have the cluster's admin set vlan in the class's VFConfig, or allowUntagged: true where no VLAN is meant (chart: deviceClasses.vf.vf)")
	}
	return nil
}

// parametersOf returns a class's parameters for our driver, in its order.
func parametersOf(class *resourceapi.DeviceClass) []json.RawMessage {
	var all []json.RawMessage
	for i := range class.Spec.Config {
		if o := class.Spec.Config[i].Opaque; o != nil && o.Driver == v1alpha1.DriverName {
			all = append(all, o.Parameters.Raw)
		}
	}
	return all
}

// sameJSON reports whether two texts are the same JSON: the order of an object's
// members is not kept on every way.
func sameJSON(a, b json.RawMessage) bool {
	var left, right any
	if json.Unmarshal(a, &left) != nil || json.Unmarshal(b, &right) != nil {
		return false
	}
	return reflect.DeepEqual(left, right)
}
