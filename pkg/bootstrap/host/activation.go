package host

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// fabricProgram activates partitions. It is not in kata-vfio's packages, because it needs NVIDIA's library.
const fabricProgram = "usr/local/bin/kata-vfio-fabric"

// activationUnit is a template unit of systemd: each instance activates the partition of its number at each boot, after Fabric
// Manager has started and before the kubelet starts pods. Fabric Manager needs a while before it accepts calls, so the unit
// retries within one start: units that are ordered after a failed unit do not wait for its next start (systemd.unit(5),
// Before=).
const activationUnit = "etc/systemd/system/kata-vfio-partition@.service"

const activation = `[Unit]
Description=Activate partition %%i of the NVSwitches
Requires=nvidia-fabricmanager.service
After=nvidia-fabricmanager.service
Before=kubelet.service k3s.service k3s-agent.service rke2-server.service rke2-agent.service

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=400
Environment='CALL={"address": "%s", "timeoutMs": 3000, "call": "activate", "id": %%i}'
ExecStart=/bin/sh -c 'for try in $$(seq 25); do echo "$$CALL" | /%s && exit 0; sleep 10; done; exit 1'

[Install]
WantedBy=multi-user.target
`

// activation requires units that activate the blueprint's partitions at each boot. If the blueprint lists none, the plugin
// activates the partitions of claims, or nobody does.
func (n *node) activation() {
	numbers := n.blueprint.Fabric.Activate
	if len(numbers) == 0 || !n.fabricIsNotThePlugins() {
		return
	}
	then := []state.FollowUp{state.UnitsReload, state.Reboot}
	n.file(state.File{
		Part: fabricPart, Path: activationUnit, Content: fmt.Appendf([]byte(header), activation, v1alpha1.DefaultFabricAddress, fabricProgram),
		Why: "activates a partition of the NVSwitches at each boot", Then: then,
	})
	for _, number := range numbers {
		n.file(state.File{ // as `systemctl enable` makes it
			Part: fabricPart, Path: fmt.Sprintf("etc/systemd/system/multi-user.target.wants/kata-vfio-partition@%d.service", number), Target: "/" + activationUnit,
			Why: fmt.Sprintf("activates partition %d", number), Then: then,
		})
	}
	if _, there := n.text(fabricPart, fabricProgram); !there {
		n.problem(state.Problem{
			Part: fabricPart, Code: rule.FabricProgramMissing, Path: fabricProgram, Text: "fabric.activate needs kata-vfio-fabric, which the node does not have: no partition becomes active",
			Fix: "build it with `make fabric`, and copy it to /" + fabricProgram + ", with NVIDIA's library libnvfm.so.1",
		})
	}
}

// fabricIsNotThePlugins reports whether the node config leaves the partitions alone, and records a problem if it does not. With
// fabric in the node config, the plugin would refuse claims for GPUs of partitions that others have activated.
func (n *node) fabricIsNotThePlugins() bool {
	text, there := n.text(fabricPart, facts.NodeConfigFile)
	if !there {
		return true
	}
	cfg, err := v1alpha1.DecodeNodeConfig([]byte(text))
	if err != nil {
		n.problem(state.Problem{
			Part: fabricPart, Code: rule.FileDamaged, Fatal: true, Path: facts.NodeConfigFile, Text: fmt.Sprintf("fabric.activate excludes fabric in the node config, which can't be read: %v", err),
			Fix: "correct /" + facts.NodeConfigFile,
		})
		return false
	}
	if cfg.Fabric == nil {
		return true
	}
	n.problem(state.Problem{
		Part: fabricPart, Code: rule.PartitionsActivatedTwice, Fatal: true, Path: facts.NodeConfigFile,
		Text: fmt.Sprintf("fabric.activate has partitions %s activated at each boot, and with fabric in /%s the plugin activates those of claims", strings.Trim(fmt.Sprint(n.blueprint.Fabric.Activate), "[]"), facts.NodeConfigFile),
		Fix:  "remove fabric.activate from the blueprint, or fabric from the node config",
	})
	return false
}
