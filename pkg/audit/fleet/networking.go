package fleet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

func networking() []requirement {
	return []requirement{
		notOurs("ai_inference", Must, "An implementation of the Gateway API", "kubectl get gatewayclasses"),
		notOurs("advanced_inference_ingress", Should, "An implementation of the Gateway API Inference Extension", "kubectl get inferencepools -A"),
		{
			entry: Requirement{
				ID: "high_performance_networking", Level: Should,
				Checked: "NICs are published by DRA with what a claim selects by, and a running pod has one beside its cluster network.",
				Commands: []Command{
					{
						"kubectl kata-vfio devices -o custom-columns=NODE:.node,DEVICE:.name,INTERFACE:.interface,MBITS:.portSpeed,RDMA:.rdma,ROOT:.pcieRoot,NUMA:.numaNode",
						"NODE DEVICE INTERFACE MBITS RDMA ROOT NUMA\n...\nworker-1 vf-0000-5e-00-2 ens5f0 100000 true pci0000:5a 0\n...",
					},
					{"kubectl kata-vfio claims -A", "NAMESPACE CLAIM STATE POD NODE DEVICES VM CONDITIONS NETWORK AGE\n...\nteam-a train-net ready ... Ready,Isolated,Reset,LinkUp ...\n..."},
					{"kubectl exec -n NAMESPACE POD -- ip -brief address", "...\nnet1 UP ...\n..."},
				},
			}, needs: []string{string(Slices), string(Claims), string(Pods)}, judge: nics,
		},
		notOurs("disaggregated_inference", Should, "A server for disaggregated inference, such as llm-d or Dynamo, in pods with GPUs", "kubectl get pods -A"),
	}
}

// notOurs is a requirement that another part of the platform provides.
func notOurs(id string, level Level, provider, command string) requirement {
	return requirement{entry: Requirement{
		ID: id, Level: level, Provider: provider, Checked: "Nothing: no part of it concerns how pods get devices.", Commands: []Command{{command, "..."}},
	}}
}

func nics(s *ConformanceState) observation {
	devices := s.devices(isNIC)
	kinds := map[string]int{}
	for _, d := range devices {
		kinds[networkWords(d)]++
	}
	pods := s.holders(isNIC)
	o := observation{evidence: append(counted(kinds, "device"), output.Count(len(pods), "running pod")+" with a NIC: "+orNone(podNames(pods)))}
	switch {
	case len(devices) == 0:
		o.reason = "no node publishes a NIC with its interface or RDMA device"
		o.fix = "create VFs (virtualFunctions in the node config), and publish them (vfAttributes: All or Selection)"
	case len(pods) == 0:
		o.reason, o.fix = "no pod with a NIC runs", "start a pod with a VF, such as deploy/examples/vf-pod-network.yaml"
	}
	return o
}

// networkWords lists the attributes by which a claim can select a NIC: "vf with interface, portSpeed, rdma, pcieRoot,
// numaNode".
func networkWords(d *Device) string {
	var words []string
	for _, known := range []struct {
		is   bool
		name string
	}{{d.Interface != "", "pfInterface"}, {d.PortSpeed != nil, "portSpeed"}, {d.RDMA, "rdma"}, {d.Root != "", "pcieRoot"}, {d.NUMA != nil, "numaNode"}} {
		if known.is {
			words = append(words, known.name)
		}
	}
	return fmt.Sprintf("%s with %s", d.Kind, strings.Join(slices.Clip(words), ", "))
}
