package twin_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/cluster"
	"github.com/kata-vfio/kata-vfio/pkg/controller/twin"
)

// fleet is a cluster of nodes with eight shared GPUs each, and a container and a VM on each node.
func fleet(nodes int) *apiServer {
	c := &apiServer{}
	for i := range nodes {
		n := fmt.Sprintf("node-%d", i)
		var ours, theirs []string
		for g := range 8 {
			ours = append(ours, fmt.Sprintf("gpu-0000-%02x-00-0 0000:%02x:00.0 sharedWith=%s driver=nvidia", 0x10+g, 0x10+g, other))
			theirs = append(theirs, fmt.Sprintf("gpu-%d 0000:%02x:00.0", g, 0x10+g))
		}
		c.Slices = append(c.Slices, slice("kata-vfio.dev", n, n+"/kata-vfio.dev/shared", 1, ours...), slice(other, n, n, 1, theirs...))
		c.Claims = append(c.Claims, allocated("container-"+n, n, other+" "+n+" gpu-0"), allocated("gone-"+n, n, other+" "+n+" mig-7"),
			allocated("vm-"+n, n, "kata-vfio.dev "+n+"/kata-vfio.dev/shared gpu-0000-11-00-0"))
		c.Rules = append(c.Rules, written(cluster.ID{Driver: other, Pool: n, Name: "gpu-1"}, n+"/0000:11:00.0", nil))
	}
	return c
}

// TestLargeFleetIsLinear: each scrape of the controller looks at all GPUs. What compares each GPU with each device of the other driver
// takes minutes for this many; the limit is far above what a look at each takes.
func TestLargeFleetIsLinear(t *testing.T) {
	c := fleet(5000).view()
	start := time.Now()
	gpus := c.GPUs(c.Nodes()...)
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("%d GPUs took %s", len(gpus), took)
	}
	if len(gpus) != 40_000 || len(gpus[0].Twins) != 1 || len(gpus[0].TwinClaims) != 2 {
		t.Errorf("there are %d GPUs, the first with twins %v and claims %v", len(gpus), gpus[0].Twins, gpus[0].TwinClaims)
	}
}

// TestScopesHaveAllOfANode: what the scopes select for a node decides as the whole cluster does.
func TestScopesHaveAllOfANode(t *testing.T) {
	whole := fleet(3)
	bare := written(cluster.ID{Driver: other, Pool: "node-1", Name: "gpu-3"}, "", nil)
	lost := written(cluster.ID{Driver: "kata-vfio.dev", Pool: "node-1/kata-vfio.dev/shared", Name: "gpu-0000-77-00-0"}, "", nil)
	whole.Rules = append(whole.Rules, bare, lost, written(cluster.ID{}, "", nil))
	whole.Claims = append(whole.Claims, allocated("anywhere", "", other+" net mig-1"), allocated("by-pool", "node-2", other+" node-1 gpu-4"),
		admin(allocated("monitor", "node-1", other+" node-1 gpu-5")), allocated("third", "node-1", "third.example.com node-1 x"), allocated("before", "node-1", "kata-vfio.dev node-1 gpu-0000-15-00-0"))
	for _, node := range []string{"node-0", "node-1", "node-2", "node-9"} {
		want, got := summaries(whole, node), summaries(selected(whole, node), node)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the GPUs of %s differ (-whole +selected):\n%s", node, diff)
		}
	}
	if c := selected(whole, "node-1"); len(c.Slices) != 2 || len(c.Rules) != 3 || len(c.Claims) != 6 {
		t.Errorf("node-1 has %d slices, %d rules and %d claims", len(c.Slices), len(c.Rules), len(c.Claims))
	}
}

// selected returns the part of a cluster that the node's scope selects.
func selected(c *apiServer, node string) *apiServer {
	one := &apiServer{}
	for _, s := range c.Slices {
		if *s.Spec.NodeName == node {
			one.Slices = append(one.Slices, s)
		}
	}
	scopes := twin.Scopes(node, one.Slices)
	concerns := func(of []twin.Scope) bool {
		return slices.ContainsFunc(of, func(s twin.Scope) bool { return slices.Contains(scopes, s) })
	}
	for _, r := range c.Rules {
		if concerns(twin.RuleScopes(r)) {
			one.Rules = append(one.Rules, r)
		}
	}
	for _, claim := range c.Claims {
		if concerns(twin.ClaimScopes(cluster.DecodeClaim(claim), []string{other})) {
			one.Claims = append(one.Claims, claim)
		}
	}
	return one
}

func summaries(c *apiServer, node string) []string {
	var all []string
	for _, g := range c.view().GPUs(node) {
		all = append(all, summary(g))
	}
	return all
}
