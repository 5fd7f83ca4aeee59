package controller

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// byScope is the index of objects by what a decision about one node selects them by: see [twin.Scope].
const byScope = "scope"

// A store has the objects that the controller decides on, indexed by scope: those of the informers, or those of one list.
type store struct {
	slices        []cache.Indexer // one for each driver
	claims, rules cache.Indexer
}

// indexers index objects by the scopes that concern them.
func indexers(drivers []string) cache.Indexers {
	return cache.Indexers{byScope: func(object any) ([]string, error) {
		var scopes []twin.Scope
		switch o := object.(type) {
		case *resourceapi.ResourceSlice:
			if o.Spec.NodeName != nil { // nothing is decided on a slice of no node
				scopes = append(scopes, twin.NodeScope(*o.Spec.NodeName))
			}
		case *resourceapi.DeviceTaintRule:
			scopes = twin.RuleScopes(o)
		case *resourceapi.ResourceClaim:
			scopes = twin.ClaimScopes(cluster.DecodeClaim(o), drivers)
		default:
			return nil, fmt.Errorf("index %T: no object that the controller decides on", object)
		}
		keys := make([]string, len(scopes))
		for i, s := range scopes {
			keys[i] = string(s)
		}
		return keys, nil
	}}
}

// listed returns an indexer with the items of a list.
func listed(drivers []string, list runtime.Object) (cache.Indexer, error) {
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers(drivers))
	for _, o := range items {
		if err := indexer.Add(o); err != nil {
			return nil, err
		}
	}
	return indexer, nil
}

// whole returns a view of all objects.
func (s *store) whole(c *Controller) *twin.View {
	v := c.empty()
	v.Rules = stored[*resourceapi.DeviceTaintRule](s.rules)
	addAll(v.Cluster, stored[*resourceapi.ResourceClaim](s.claims))
	for _, one := range s.slices {
		addAll(v.Cluster, stored[*resourceapi.ResourceSlice](one))
	}
	return v
}

// on returns a view of the objects that a decision about a node needs. What it costs does not grow with the cluster.
func (s *store) on(c *Controller, node string) *twin.View {
	v := c.empty()
	var slices []*resourceapi.ResourceSlice
	for _, one := range s.slices {
		slices = append(slices, scoped[*resourceapi.ResourceSlice](one, twin.NodeScope(node))...)
	}
	scopes := twin.Scopes(node, slices)
	v.Rules = scoped[*resourceapi.DeviceTaintRule](s.rules, scopes...)
	addAll(v.Cluster, slices)
	addAll(v.Cluster, scoped[*resourceapi.ResourceClaim](s.claims, scopes...))
	return v
}

// empty returns a view of no objects.
func (c *Controller) empty() *twin.View {
	return &twin.View{Drivers: c.config.Drivers, Cluster: &cluster.Cluster{}, Since: c.since}
}

func addAll[T any](to *cluster.Cluster, objects []T) {
	for _, o := range objects {
		to.Add(o)
	}
}

func stored[T any](i cache.Indexer) []T {
	var all []T
	for _, o := range i.List() {
		if t, ok := o.(T); ok {
			all = append(all, t)
		}
	}
	return all
}

// scoped returns the objects with one of the scopes, each once. An object that changes meanwhile counts as it was seen first.
func scoped[T runtime.Object](i cache.Indexer, scopes ...twin.Scope) []T {
	var all []T
	seen := map[string]bool{}
	for _, scope := range scopes {
		objects, err := i.ByIndex(byScope, string(scope))
		if err != nil {
			continue // only without the index, which each store has
		}
		for _, o := range objects {
			t, ok := o.(T)
			key, err := cache.MetaNamespaceKeyFunc(o)
			if !ok || err != nil || seen[key] {
				continue
			}
			seen[key] = true
			all = append(all, t)
		}
	}
	return all
}
