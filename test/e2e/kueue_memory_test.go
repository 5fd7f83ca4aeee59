//go:build e2e

package e2e

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// memoryQueue has the memory of two and a half GPUs.
const memoryQueue = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: memory}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu, memory, kata-vfio.dev/gpu-memory]
    flavors:
    - name: kata
      resources:
      - {name: cpu, nominalQuota: 64}
      - {name: memory, nominalQuota: 256Gi}
      - {name: kata-vfio.dev/gpu-memory, nominalQuota: 200Gi}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: memory}
spec: {clusterQueue: memory}
`

// testMemory has Kueue charge the counters of GPUs and pairs.
func (q *queued) testMemory(t *testing.T) {
	k := startKueue(t, q.plane, "kueue-configuration-memory.yaml")
	q.apply(memoryQueue)
	t.Cleanup(func() {
		// The test's own context is over by now.
		if _, err := q.plane.Kubectl(context.Background(), "delete", "--wait=false", "clusterqueue/memory"); err != nil {
			t.Error(err)
		}
	})
	gpu := job{name: "gpu-by-memory", queue: "memory", pods: 1, requests: exactly("gpu."+driver, 1, "")}
	pair := job{name: "pair-by-memory", queue: "memory", pods: 1, requests: exactly("gpu-vf."+driver, 1, "")}
	third := job{name: "third-by-memory", queue: "memory", pods: 1, requests: exactly("gpu."+driver, 1, "")}
	for _, j := range []job{gpu, pair} {
		q.apply(j.yaml())
		if diff := cmp.Diff(map[string]int64{memoryQuota: 80 << 30}, q.admitted(t, j.name, 1)); diff != "" {
			t.Errorf("the charge of job %s differs (-want +got):\n%s", j.name, diff)
		}
	}
	q.apply(third.yaml())
	q.held(t, third.name, "insufficient unused quota for "+memoryQuota)
	q.remove(t, gpu.name)
	q.admitted(t, third.name, 1)
	q.remove(t, pair.name)
	q.remove(t, third.name)
	if err := k.Lost(); err != nil {
		t.Error(err)
	}
}
