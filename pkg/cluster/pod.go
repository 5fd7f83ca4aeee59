package cluster

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
)

// Pod is a pod that was listed.
type Pod struct {
	Object *corev1.Pod
	// Claims are the names of the pod's claims, including those made from templates and for extended resources. A claim that is not made
	// yet is not included.
	Claims []string
}

// Name returns "<namespace>/<name>".
func (p *Pod) Name() string { return p.Object.Namespace + "/" + p.Object.Name }

// Ended reports whether all containers of the pod have ended and will not be restarted.
func (p *Pod) Ended() bool {
	return p.Object.Status.Phase == corev1.PodSucceeded || p.Object.Status.Phase == corev1.PodFailed
}

func (c *Cluster) addPod(o *corev1.Pod) {
	p := &Pod{Object: o, Claims: claim.NamesOfPod(o)}
	c.pods = append(c.pods, p)
	put(&c.podNames, objectKey{o.Namespace, o.Name}, p)
	for _, name := range p.Claims {
		appendTo(&c.users, objectKey{o.Namespace, name}, p)
	}
}

// Pods returns the pods in the order in which they were added.
func (c *Cluster) Pods() []*Pod {
	c.passes.Add(1)
	return c.pods
}

// Pod returns a pod; nil if none of the name was added.
func (c *Cluster) Pod(namespace, name string) *Pod { return c.podNames[objectKey{namespace, name}] }

// PodClaims returns those claims of a pod that exist, by name.
func (c *Cluster) PodClaims(p *Pod) []*Claim {
	var claims []*Claim
	for _, name := range p.Claims {
		if one := c.Claim(p.Object.Namespace, name); one != nil {
			claims = append(claims, one)
		}
	}
	return claims
}

// IsUsed reports whether a pod that has not ended names the claim.
func (c *Cluster) IsUsed(target *Claim) bool {
	users := c.users[objectKey{target.Object.Namespace, target.Object.Name}]
	return slices.ContainsFunc(users, func(p *Pod) bool { return !p.Ended() })
}

// Containers returns all containers of a pod: init containers, its own, and the ephemeral ones that debuggers add.
func Containers(spec *corev1.PodSpec) []corev1.Container {
	all := slices.Concat(spec.InitContainers, spec.Containers)
	for i := range spec.EphemeralContainers {
		all = append(all, corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

// NamesClaim reports whether a container of the pod uses the pod's claim with the name. The devices of a claim that no container uses go to
// no container.
func NamesClaim(spec *corev1.PodSpec, name string) bool {
	// Ephemeral containers can't have resources, so they can't name claims.
	return slices.ContainsFunc(slices.Concat(spec.InitContainers, spec.Containers), func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Resources.Claims, func(r corev1.ResourceClaim) bool { return r.Name == name })
	})
}
