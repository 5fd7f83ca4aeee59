package controller

import (
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/stage"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// byScope is the name of the index of objects by [twin.Scope]. A decision about one node selects objects by it.
const byScope = "scope"

// byStage is the name of the index of objects by [stage.Scope]. A decision about stages selects objects by it.
const byStage = "stage"

// A store has the objects that the controller decides on, indexed by scope: those of the informers, or those of one list.
type store struct {
	slices        []cache.Indexer // one for each driver
	claims, rules cache.Indexer
}

// indexers index objects by the scopes that concern them.
func (c *Config) indexers() cache.Indexers {
	all := cache.Indexers{byScope: func(object any) ([]string, error) {
		switch o := object.(type) {
		case *resourceapi.ResourceSlice:
			if o.Spec.NodeName == nil { // nothing is decided on a slice of no node
				return nil, nil
			}
			return keys([]twin.Scope{twin.NodeScope(*o.Spec.NodeName)}), nil
		case *resourceapi.DeviceTaintRule:
			return keys(twin.RuleScopes(o)), nil
		case *resourceapi.ResourceClaim:
			return keys(twin.ClaimScopes(cluster.DecodeClaim(o), c.Drivers)), nil
		}
		return nil, fmt.Errorf("index %T: no object that the controller decides on", object)
	}}
	if c.Sanitizers != nil {
		all[byStage] = c.stageIndex
	}
	return all
}

// stageIndex returns the keys of a slice or claim in the index byStage.
func (c *Config) stageIndex(object any) ([]string, error) {
	switch o := object.(type) {
	case *resourceapi.ResourceSlice:
		return keys(stage.SliceScopes(o)), nil
	case *resourceapi.ResourceClaim:
		return keys(stage.ClaimScopes(cluster.DecodeClaim(o), c.Sanitizers)), nil
	}
	return nil, nil
}

func keys[S ~string](scopes []S) []string {
	all := make([]string, len(scopes))
	for i, s := range scopes {
		all[i] = string(s)
	}
	return all
}

// listed returns an indexer with the items of a list.
func listed(c *Config, list runtime.Object) (cache.Indexer, error) {
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, err
	}
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, c.indexers())
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

// nodes returns the nodes that have slices of ours, or that claims and rules concern, in order. It reads the indexes only.
func (s *store) nodes() []string {
	var all []string
	for _, one := range []cache.Indexer{s.slices[0], s.claims, s.rules} {
		for _, key := range one.ListIndexFuncValues(byScope) {
			if node, ok := twin.Scope(key).Node(); ok {
				all = append(all, node)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// on returns a view of the objects that a decision about a node needs. Its cost does not grow with the cluster.
func (s *store) on(c *Controller, node string) *twin.View {
	v := c.empty()
	var published []*resourceapi.ResourceSlice
	for _, one := range s.slices {
		published = append(published, scoped[*resourceapi.ResourceSlice](one, twin.NodeScope(node))...)
	}
	scopes := twin.Scopes(node, published)
	v.Rules = scoped[*resourceapi.DeviceTaintRule](s.rules, scopes...)
	addAll(v.Cluster, published)
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
	return indexed[T](i, byScope, keys(scopes)...)
}

// indexed returns the objects that an index has with one of the keys, each once.
func indexed[T runtime.Object](i cache.Indexer, index string, keys ...string) []T {
	var all []T
	seen := map[string]bool{}
	for _, key := range keys {
		objects, err := i.ByIndex(index, key)
		if err != nil {
			continue // only if the index is missing, and each store has it
		}
		for _, o := range objects {
			t, ok := o.(T)
			name, err := cache.MetaNamespaceKeyFunc(o)
			if !ok || err != nil || seen[name] {
				continue
			}
			seen[name] = true
			all = append(all, t)
		}
	}
	return all
}
