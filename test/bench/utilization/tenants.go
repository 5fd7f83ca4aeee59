package utilization

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Mix says how many tenants there are, and how unequal they are: the k-th tenant has a share of the jobs in proportion to 1/k
// to the power of Skew. If Skew is 0, all tenants have the same share.
type Mix struct {
	Tenants int
	Skew    float64
}

// Of returns a trace whose jobs belong to tenants of the mix, and are otherwise the same.
func (m Mix) Of(seed uint64, jobs []Job) []Job {
	random := rand.New(rand.NewPCG(seed, 3))
	weights, sum := make([]float64, m.Tenants), 0.0
	for k := range weights {
		weights[k] = 1 / math.Pow(float64(k+1), m.Skew)
		sum += weights[k]
	}
	all := slices.Clone(jobs)
	for i := range all {
		left := random.Float64() * sum
		for all[i].Tenant = 0; all[i].Tenant < m.Tenants-1 && left >= weights[all[i].Tenant]; all[i].Tenant++ {
			left -= weights[all[i].Tenant]
		}
	}
	return all
}
