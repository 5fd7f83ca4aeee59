package fleet

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
)

func observability() []requirement {
	return []requirement{
		{
			entry: Requirement{
				ID: "accelerator_metrics", Level: Must,
				Checked: "A running pod with a GPU serves metrics: it has a container port named metrics, or the annotation prometheus.io/scrape. " +
					"Utilization, memory use, temperature and power draw are known to the GPU's driver only, which runs in the guest: through VFIO the node reads none of them, so the exporter runs in the pod. " +
					"The node has the PCIe link, AER errors, resets and each claim's times.",
				Commands: []Command{
					{"kubectl get --raw /api/v1/namespaces/NAMESPACE/pods/POD:metrics/proxy/metrics", "...\nDCGM_FI_DEV_GPU_UTIL...\n...\nDCGM_FI_DEV_FB_USED...\n..."},
					{"curl -sk -H \"Authorization: Bearer TOKEN\" https://PLUGIN-POD-IP:9456/metrics", "...\nkata_vfio_devices...\n...\nkata_vfio_phase_duration_seconds...\n..."},
					{
						"kubectl kata-vfio devices -o custom-columns=NODE:.node,DEVICE:.name,LINK:.linkSpeed,RESET:.reset,HEALTH:.health",
						"NODE DEVICE LINK RESET HEALTH\n...\nworker-1 gpu-0000-3b-00-0 32000 ...\n...",
					},
				},
			}, needs: []string{string(Slices), string(Claims), string(Pods), DaemonSets}, judge: metrics,
		},
		notOurs("ai_service_metrics", Must, "A monitoring system, such as Prometheus", "kubectl get servicemonitors,podmonitors -A"),
	}
}

// metrics looks for exporters in guests, and for the node's own measures.
func metrics(s *ConformanceState) observation {
	pods := s.holders(isGPU)
	serving := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !servesMetrics(p) })
	o := observation{evidence: append(hostEvidence(s), fmt.Sprintf("running pods with a GPU that serve metrics: %d of %d (%s)", len(serving), len(pods), orNone(podNames(serving))))}
	switch {
	case len(s.devices(isGPU)) == 0:
		o.reason, o.fix = noGPU()
	case len(serving) == 0:
		o.reason = "no running pod with a GPU serves metrics, and the node can't read the GPU's utilization and memory use"
		o.fix = "run the vendor's exporter in the pod, such as dcgm-exporter as a sidecar with the claim, with a port named metrics"
	}
	return o
}

// metricsPort is the name of a container port that serves metrics. The commands of the requirement name it.
const metricsPort = "metrics"

func servesMetrics(p *corev1.Pod) bool {
	if p.Annotations["prometheus.io/scrape"] == "true" {
		return true
	}
	containers := slices.Concat(p.Spec.InitContainers, p.Spec.Containers) // a sidecar is an init container that goes on
	return slices.ContainsFunc(containers, func(c corev1.Container) bool {
		return slices.ContainsFunc(c.Ports, func(port corev1.ContainerPort) bool { return port.Name == metricsPort })
	})
}

// hostEvidence describes the links and health of GPUs that nodes publish, and the ports on which plugins serve metrics.
func hostEvidence(s *ConformanceState) []string {
	gpus := s.gpus()
	links, broken := 0, 0
	for _, gpu := range gpus {
		if gpu.LinkSpeed != nil {
			links++
		}
		if gpu.isBroken() {
			broken++
		}
	}
	all := []string{fmt.Sprintf("%s: PCIe link speed known of %d; %d quarantined, dead, with a lost link or fatal AER errors",
		output.Count(len(gpus), "GPU"), links, broken)}
	for i := range s.DaemonSets {
		d := &s.DaemonSets[i]
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, port := range c.Ports {
				if port.Name == metricsPort {
					all = append(all, fmt.Sprintf("DaemonSet %s/%s serves /metrics on port %d of %s", d.Namespace, d.Name, port.ContainerPort, output.Count(int(d.Status.NumberReady), "node")))
				}
			}
		}
	}
	return all
}

// isBroken reports whether the node found a fault of the device's hardware, or could not prove the device clean. The published health has
// the reasons of operators, of the node and of its configuration, too.
func (d *Device) isBroken() bool {
	return slices.ContainsFunc(d.Health, func(word string) bool {
		key, _, _ := strings.Cut(word, "=")
		return slices.Contains([]string{publish.TaintQuarantined, publish.TaintDead, publish.TaintLinkLost, publish.TaintFatalErrors}, v1alpha1.DriverName+"/"+key)
	})
}
