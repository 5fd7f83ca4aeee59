package controller

import (
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	resourceinformers "k8s.io/client-go/informers/resource/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// byPool is the name of the index of DeviceTaintRules by [ruledPools].
const byPool = "pool"

// allPools is the key of the rules that name no pool. No pool has an empty name.
const allPools = ""

// openRuledOut makes the informer of all DeviceTaintRules, of anyone. The rules of shared GPUs have an informer of their own.
func (i *informers) openRuledOut(c *Controller) error {
	if c.classes == nil && c.counts == nil || !c.config.TaintRules && !c.shares() {
		return nil
	}
	i.ruledOut = resourceinformers.NewDeviceTaintRuleInformer(c.config.Client, 0, cache.Indexers{byPool: func(object any) ([]string, error) {
		r, ok := object.(*resourceapi.DeviceTaintRule)
		if !ok {
			return nil, nil
		}
		return ruledPools(r), nil
	}})
	if c.counts == nil {
		return nil
	}
	_, err := i.ruledOut.AddEventHandler(handler(c.counts.ruled))
	return err
}

// ruledPools returns the pool from whose devices a rule keeps claims, [allPools] if it names none, and nothing if it keeps no claims from
// devices of kata-vfio.
func ruledPools(r *resourceapi.DeviceTaintRule) []string {
	of := r.Spec.DeviceSelector
	switch {
	case of == nil || of.Driver != nil && *of.Driver != v1alpha1.DriverName || !cluster.KeepsAway(&r.Spec.Taint):
		return nil
	case of.Pool == nil:
		return []string{allPools}
	}
	return []string{*of.Pool}
}

// exclusions returns the devices of a model from which DeviceTaintRules keep claims: because of a drain, or because claims of another driver
// have them. It returns none if the API server has no such rules.
func (i *informers) exclusions(model *cluster.Cluster) map[cluster.ID]bool {
	out := map[cluster.ID]bool{}
	if i.ruledOut == nil {
		return out
	}
	for _, p := range model.Pools() {
		// A pool is compared with its own rules only: each shared GPU that is allocated has a rule, so a cluster may have thousands.
		rules := indexed[*resourceapi.DeviceTaintRule](i.ruledOut.GetIndexer(), byPool, p.Name, allPools)
		for _, d := range p.Devices {
			if slices.ContainsFunc(rules, func(r *resourceapi.DeviceTaintRule) bool { return cluster.Selects(r, d.ID) }) {
				out[d.ID] = true
			}
		}
	}
	return out
}
