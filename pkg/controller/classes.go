package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// classViews publishes what tenants may know about DeviceClasses. It looks at fixed intervals, and not when something changes,
// so that readers of the view can't learn when a claim came or went.
type classViews struct {
	controller *Controller
	// namespace has the ConfigMap. The chart makes and removes it, so that this program needs no right to create one.
	namespace string
	compiler  interface {
		CompileCELExpression(expression string, options cel.Options) cel.CompilationResult
	}
	// matches caches which devices of a slice match a class, until the class or the slice changes.
	matches map[matchKey]match
	// said is the view that was written last, without its time. saidAt is when it was written.
	said   string
	saidAt time.Time
}

// matchKey identifies one version of a class and one version of a slice.
type matchKey struct{ class, classVersion, slice, sliceVersion string }

// match says which devices of a slice match a class. fails is true if a selector can't be compiled, or fails on a device.
type match struct {
	devices map[string]bool
	fails   bool
}

// Times of the view. A change is published within classesEvery. Without a change, the time of the view is renewed after
// classesRenewed, so that readers see that the controller still runs.
const (
	classesEvery   = time.Minute
	classesRenewed = 10 * time.Minute
)

// classesManager is the field manager of the view.
const classesManager = "kata-vfio-classes"

func newClassViews(c *Controller) *classViews {
	return &classViews{controller: c, namespace: c.config.ClassesNamespace, compiler: cel.GetCompiler(cel.Features{}), matches: map[matchKey]match{}}
}

// run publishes until ctx ends.
func (v *classViews) run(ctx context.Context) {
	for {
		v.round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(classesEvery):
		}
	}
}

// round publishes the view if it has changed, or if its time is old. A write that fails is tried again in the next round.
func (v *classViews) round(ctx context.Context) {
	view := v.view(ctx)
	text, err := view.Encode()
	now := v.controller.config.Now()
	// The text is without the time of the view, so views of the same content are equal.
	if err != nil || text == v.said && now.Sub(v.saidAt) < classesRenewed {
		return
	}
	view.Updated = now.UTC().Format(time.RFC3339)
	limited, cancel := context.WithTimeoutCause(ctx, writeLimit, errors.New("no answer in time"))
	defer cancel()
	if err := v.write(limited, view); err != nil {
		if ctx.Err() == nil {
			v.controller.config.Metrics.classFailures.Inc()
			v.controller.config.Log.WarnContext(ctx, "the view of DeviceClasses is not published: tenants see the former one", slog.Any("err", err))
		}
		return
	}
	v.said, v.saidAt = text, now
}

// write changes the view, and nothing else of the ConfigMap.
func (v *classViews) write(ctx context.Context, view *cluster.ClassView) error {
	text, err := view.Encode()
	if err != nil {
		return fmt.Errorf("encode the view: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string]string{cluster.ClassesKey: text}})
	if err != nil {
		return fmt.Errorf("encode the view: %w", err)
	}
	_, err = v.controller.config.Client.CoreV1().ConfigMaps(v.namespace).Patch(ctx, cluster.ClassesConfigMap, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: classesManager})
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", v.namespace, cluster.ClassesConfigMap, err)
	}
	return nil
}

// view returns the view of what is cached now, without its time.
func (v *classViews) view(ctx context.Context) *cluster.ClassView {
	i := &v.controller.informers
	// The first informer is that of the driver's own slices.
	model, published := &cluster.Cluster{}, stored[*resourceapi.ResourceSlice](i.slices[0].GetIndexer())
	addAll(model, published)
	addAll(model, stored[*resourceapi.ResourceClaim](i.claims.GetIndexer()))
	addAll(model, stored[*resourceapi.DeviceClass](i.classes.GetIndexer()))
	view := &cluster.ClassView{Classes: []cluster.ClassOffer{}, Grants: []string{}}
	excluded, kept := i.exclusions(model), map[matchKey]match{}
	for _, class := range model.OurClasses() {
		offer := cluster.NewClassOffer(class)
		matching := map[cluster.ID]bool{}
		for _, s := range published {
			m := v.match(ctx, class, s, kept)
			offer.SelectorFails = offer.SelectorFails || m.fails
			for name := range m.devices {
				matching[cluster.ID{Driver: s.Spec.Driver, Pool: s.Spec.Pool.Name, Name: name}] = true
			}
		}
		count(&offer, model, matching, excluded)
		view.Classes = append(view.Classes, offer)
		view.Grants = append(view.Grants, v.grants(class)...)
	}
	// Drop the matches that this round did not use: their classes or slices are gone or have changed.
	v.matches = kept
	sortGrants(view)
	return view
}

// count counts the devices that match, and those of them that are free and not excluded. If a selector fails, no device counts as free, because
// no claim gets one.
func count(offer *cluster.ClassOffer, model *cluster.Cluster, matching, excluded map[cluster.ID]bool) {
	free := 0
	for _, p := range model.Pools() {
		for _, d := range p.Devices {
			if matching[d.ID] {
				offer.Matching(d)
			}
		}
		free += model.FreeAtOnce(p, func(d *cluster.Device) bool { return matching[d.ID] && !excluded[d.ID] })
	}
	if offer.SelectorFails {
		free = 0
	}
	offer.SetFree(free)
}

// grants returns the keys of the namespaces that a class names.
func (v *classViews) grants(class *resourceapi.DeviceClass) (keys []string) {
	if class.Annotations[v1alpha1.AnnotationNamespaces] == "" {
		return nil
	}
	for name := range strings.SplitSeq(class.Annotations[v1alpha1.AnnotationNamespaces], ",") {
		if name = strings.TrimSpace(name); name == v1alpha1.AllNamespaces {
			continue
		}
		object, known, err := v.controller.informers.namespaces.GetIndexer().GetByKey(name)
		if n, ok := object.(*corev1.Namespace); ok && known && err == nil {
			keys = append(keys, cluster.GrantKey(class.Name, string(n.UID)))
		}
	}
	return keys
}

// sortGrants sorts the grants, so that their order reveals nothing, and removes duplicates.
func sortGrants(view *cluster.ClassView) {
	slices.Sort(view.Grants)
	view.Grants = slices.Compact(view.Grants)
}

// match evaluates the class's selectors on the devices of a slice, as the scheduler does, or returns the cached result.
func (v *classViews) match(ctx context.Context, class *resourceapi.DeviceClass, s *resourceapi.ResourceSlice, kept map[matchKey]match) match {
	// An object of the same resource version has the same content, and an evaluation in CEL costs most of a round.
	key := matchKey{class.Name, class.ResourceVersion, s.Name, s.ResourceVersion}
	m, known := v.matches[key]
	if !known {
		m = v.evaluate(ctx, class, s)
	}
	kept[key] = m
	return m
}

func (v *classViews) evaluate(ctx context.Context, class *resourceapi.DeviceClass, s *resourceapi.ResourceSlice) match {
	m := match{devices: map[string]bool{}}
	var selectors []cel.CompilationResult
	for _, sel := range class.Spec.Selectors {
		if sel.CEL == nil {
			continue
		}
		compiled := v.compiler.CompileCELExpression(sel.CEL.Expression, cel.Options{})
		if compiled.Error != nil {
			return match{fails: true}
		}
		selectors = append(selectors, compiled)
	}
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		matches := true
		for _, sel := range selectors {
			yes, _, err := sel.DeviceMatches(ctx, cel.Device{Driver: s.Spec.Driver, Attributes: d.Attributes, Capacity: d.Capacity})
			// The scheduler ends the allocation of a claim with this error, even if other devices match.
			m.fails = m.fails || err != nil
			matches = matches && yes && err == nil
		}
		if matches {
			m.devices[d.Name] = true
		}
	}
	return m
}
