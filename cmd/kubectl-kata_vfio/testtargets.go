package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

// targets are the nodes to test, in order, and what nodes publish.
type targets struct {
	nodes []nodeTest
	// ids are the vendor and device IDs of each device that publishes them.
	ids map[cluster.ID][2]string
}

// targets finds the nodes that have a free device of the class. The error is a [fleet.NotFoundError] if there is none.
func (t *podTest) targets(cmd *cobra.Command, s *session, client lister) (*targets, error) {
	ctx := cmd.Context()
	w := want{needs: []fleet.Kind{fleet.Slices, fleet.Claims}, node: t.node, now: s.now}
	state, err := w.read(ctx, client)
	if err != nil {
		return nil, err
	}
	state.TaintRules = taintRules(cmd, client)
	var class resourceapi.DeviceClass
	switch err := client.Get(ctx, "", t.class, &class); {
	case apierrors.IsNotFound(err):
		return nil, &fleet.NotFoundError{Name: "DeviceClass " + t.class}
	case apierrors.IsForbidden(err):
		return nil, &forbiddenError{kind: fleet.Classes, err: err}
	case err != nil:
		return nil, fmt.Errorf("read DeviceClass %s: %w", t.class, err)
	}
	selectors, err := compile(&class)
	if err != nil {
		return nil, fmt.Errorf("find the devices of DeviceClass %s: %w", t.class, err)
	}
	found, selected := &targets{ids: map[cluster.ID][2]string{}}, map[cluster.ID]bool{}
	k := w.kind(client, fleet.Slices)
	p := pager.New(k.list)
	p.PageSize = pageSize
	err = p.EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		slice, ok := o.(*resourceapi.ResourceSlice)
		if !ok {
			return nil
		}
		found.addIDs(slice)
		return selects(ctx, selectors, slice, selected)
	})
	if err != nil {
		return nil, fmt.Errorf("find the devices of DeviceClass %s: %w", t.class, err)
	}
	if found.add(state, t.class, selected); len(found.nodes) == 0 {
		where := "any node"
		if t.node != "" {
			where = "node " + t.node
		}
		return nil, &fleet.NotFoundError{Name: fmt.Sprintf("free device of DeviceClass %s on %s", t.class, where)}
	}
	return found, nil
}

// add adds the nodes with free devices that are selected.
func (f *targets) add(state *fleet.State, class string, selected map[cluster.ID]bool) {
	for _, d := range state.Devices() { // by node
		if d.Use != fleet.Free || d.Node == "" || !selected[deviceID(&d)] {
			continue
		}
		if n := len(f.nodes); n == 0 || f.nodes[n-1].Node != d.Node {
			f.nodes = append(f.nodes, nodeTest{Node: d.Node, Class: class, Result: planned, Checks: []testCheck{}})
		}
		f.nodes[len(f.nodes)-1].Free++
	}
}

// addIDs keeps the vendor and device IDs of the slice's devices. The test compares them with those that the VM sees.
func (f *targets) addIDs(slice *resourceapi.ResourceSlice) {
	for i := range slice.Spec.Devices {
		d := &slice.Spec.Devices[i]
		vendor, device := d.Attributes[publish.AttrVendor].StringValue, d.Attributes[publish.AttrDevice].StringValue
		if vendor != nil && device != nil {
			f.ids[cluster.ID{Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Name: d.Name}] = [2]string{*vendor, *device}
		}
	}
}

// compile compiles the selectors of a class. That costs much more than to evaluate them for a device.
func compile(class *resourceapi.DeviceClass) (selectors []cel.CompilationResult, err error) {
	compiler := cel.GetCompiler(cel.Features{})
	for _, sel := range class.Spec.Selectors {
		if sel.CEL == nil {
			continue
		}
		compiled := compiler.CompileCELExpression(sel.CEL.Expression, cel.Options{})
		if compiled.Error != nil {
			return nil, fmt.Errorf("its selector: %w", compiled.Error)
		}
		selectors = append(selectors, compiled)
	}
	return selectors, nil
}

// selects adds the devices of a slice that all selectors of a class match, as the scheduler does.
func selects(ctx context.Context, selectors []cel.CompilationResult, slice *resourceapi.ResourceSlice, selected map[cluster.ID]bool) error {
	for i := range slice.Spec.Devices {
		d := &slice.Spec.Devices[i]
		matches := true
		for _, sel := range selectors {
			yes, _, err := sel.DeviceMatches(ctx, cel.Device{Driver: slice.Spec.Driver, Attributes: d.Attributes, Capacity: d.Capacity})
			if err != nil {
				return fmt.Errorf("its selector fails for device %s: %w", d.Name, err)
			}
			matches = matches && yes
		}
		if matches {
			selected[cluster.ID{Driver: slice.Spec.Driver, Pool: slice.Spec.Pool.Name, Name: d.Name}] = true
		}
	}
	return nil
}

func deviceID(d *fleet.Device) cluster.ID {
	return cluster.ID{Driver: v1alpha1.DriverName, Pool: d.Pool, Name: d.Name}
}
