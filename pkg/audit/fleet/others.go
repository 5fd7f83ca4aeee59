package fleet

import (
	"fmt"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

func operators() []requirement {
	return []requirement{notOurs("robust_controller", Must, "An operator with a CRD, such as KubeRay or Kubeflow", "kubectl get crds")}
}

// former returns the requirements that only earlier profiles have. DRA is part
// of the conformance of Kubernetes itself since 1.35.
func former() []requirement {
	return []requirement{{
		entry: Requirement{
			ID: "dra_support", Level: Must, Until: "v1.35",
			Checked: "The API server serves resource.k8s.io/v1, nodes publish devices of the driver, and DeviceClasses select them.",
			Commands: []Command{
				{
					"kubectl api-resources --api-group=resource.k8s.io -o name",
					"deviceclasses.resource.k8s.io\n...\nresourceclaims.resource.k8s.io\n...\nresourceclaimtemplates.resource.k8s.io\n...\nresourceslices.resource.k8s.io\n...",
				},
				{"kubectl get resourceslices --field-selector spec.driver=kata-vfio.dev", "NAME NODE DRIVER POOL AGE\n...\n... kata-vfio.dev ...\n..."},
				{"kubectl get deviceclasses", "NAME AGE\n...\ngpu.kata-vfio.dev ...\n..."},
			},
		}, needs: []string{string(Slices), string(Classes), APIs}, judge: dra,
	}}
}

// draAPIs are the APIs that pods with devices use.
func draAPIs() []API {
	const group = resourceapi.GroupName
	return []API{{group, "deviceclasses"}, {group, "resourceclaims"}, {group, "resourceclaimtemplates"}, {group, "resourceslices"}}
}

func dra(s *ConformanceState) observation {
	served, devices := s.serves(draAPIs()...), s.devices(every)
	var classes []string
	for _, class := range s.Fleet.Cluster.OurClasses() {
		classes = append(classes, class.Name)
	}
	o := observation{evidence: []string{
		"served: " + orNone(served), "DeviceClasses: " + orNone(classes),
		fmt.Sprintf("published: %s of %s on %s", output.Count(len(devices), "device"), v1alpha1.DriverName, output.Count(len(nodes(devices)), "node")),
	}}
	switch {
	case len(served) < len(draAPIs()):
		o.reason, o.fix = "the API server does not serve all of resource.k8s.io/v1", "use Kubernetes 1.36.6 or newer"
	case len(devices) == 0:
		o.reason, o.fix = "no node publishes a device", "label a node with devices kata-vfio.dev/node=true, and see `kubectl kata-vfio devices`"
	case len(classes) == 0:
		o.reason, o.fix = "there is no DeviceClass of kata-vfio", "install the chart with deviceClasses"
	}
	return o
}
