//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
)

// The second handler, which bootstrap installs beside kata-gpu, and the MiB of memory that its files give: of a VM beside the limits of the
// pod's containers, of the RuntimeClass's overhead, and of the pod's limits here.
const (
	nicHandler    = "kata-vfio"
	nicMemory     = 1024
	nicOverhead   = 1536
	nicPodsLimits = 256
)

// addNICHandler has bootstrap add the handler, with the lab's settings except for the memory, which is what is tested; removeNICHandler takes it
// back.
const (
	labsBlueprint = node.Dir + "/etc/kata-blueprint.yaml"
	nicsBlueprint = "/run/kata-nic-blueprint.yaml"
	addNICHandler = `set -e
mkdir -p "$dir/config.d"
sed /_memory/d ` + node.Dir + `/etc/kata-lab.toml >"$dir/config.d/60-lab.toml"
sed 's/base: NIC/&, nicHandler: true/' ` + labsBlueprint + ` >` + nicsBlueprint + `
kata-vfio-bootstrap apply -f ` + nicsBlueprint + ` || [ $? -eq 3 ]
kata-vfio-bootstrap verify -f ` + nicsBlueprint + `
`
	removeNICHandler = `set -e
kata-vfio-bootstrap apply -f ` + labsBlueprint + ` || [ $? -eq 3 ]
rm "$dir/config.d/60-lab.toml" ` + nicsBlueprint + `
rmdir "$dir/config.d" "$dir" 2>/dev/null || [ ! -e "$dir" ]
`
)

// nicPodHasSmallVM: a pod of the RuntimeClass kata-vfio boots a VM with the memory of its handler, on a small overhead, and the VM has its VF.
func nicPodHasSmallVM(ctx context.Context, s *site) error {
	dir := "dir=" + path.Join(path.Dir(s.kata.HandlerConfig()), nicHandler) + "\n"
	said, err := s.output(ctx, dir+addNICHandler)
	if err != nil {
		return fmt.Errorf("add the handler: %w", err)
	}
	s.log("bootstrap adds the handler: %s", said)
	err = s.node.RestartContainerd(ctx)
	if err == nil {
		err = s.node.InstallPlugin(ctx, chart, "runtimeClass.nic.enabled=true", "runtimeClass.nic.overhead.cpu=100m",
			"allowedRuntimeClasses={kata-gpu,kata-vfio}", "nodeConfig.allowedHandlers={kata-gpu,kata-vfio}")
	}
	if err == nil {
		err = errors.Join(s.auditHasBothHandlers(ctx), s.smallVMHasVF(ctx))
	}
	after := context.WithoutCancel(ctx)
	_, removeErr := s.output(after, dir+removeNICHandler)
	return errors.Join(err, removeErr, s.node.RestartContainerd(after), s.node.InstallPlugin(after, chart))
}

// auditHasBothHandlers: the audit understands the settings of both handlers, and that only one of them has the lab's memory.
func (s *site) auditHasBothHandlers(ctx context.Context) error {
	read, err := s.output(ctx, path.Join(node.Dir, "bin", auditProgram)+" handlers -o json")
	if err != nil {
		return err
	}
	var all audit.Handlers
	if err := json.Unmarshal([]byte(read), &all); err != nil {
		return err
	}
	memory := map[string]int64{}
	for _, h := range all.Handlers {
		if memory[h.Name] = h.LimitedMiB; h.Damaged != "" || h.ColdPlug != "root-port" || len(h.Annotations) > 0 {
			return fmt.Errorf("want a handler that cold-plugs and takes no annotations, the audit reads %+v", h)
		}
	}
	if len(memory) != 2 || memory[nicHandler] != nicMemory || memory[node.Handler] >= nicMemory {
		return fmt.Errorf("want two handlers, of which %s has %d MiB: the audit reads %v", nicHandler, nicMemory, memory)
	}
	return nil
}

func (s *site) smallVMHasVF(ctx context.Context) error {
	limits := fmt.Sprintf("resources: {limits: {memory: %dMi}, claims:", nicPodsLimits)
	pod := strings.NewReplacer("runtimeClassName: kata-gpu", "runtimeClassName: "+nicHandler, "resources: {claims:", limits).Replace(vmPod("nic", vfOfTemplate))
	if err := s.apply(ctx, tenant, templates+pod); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "nic"); err != nil {
		return err
	}
	report, err := s.checkVM(ctx, "nic")
	if err == nil && (len(report.Interfaces) != 1 || report.Interfaces[0].Driver != "igbvf") {
		err = fmt.Errorf("want a network interface that works, the VM sees %+v", report)
	}
	return errors.Join(err, s.vmIsSmall(ctx), s.deletePods(ctx, "nic"))
}

// vmIsSmall compares the memory of the node's only VM, and of its pod, with what the handler and its RuntimeClass say.
func (s *site) vmIsSmall(ctx context.Context) error {
	pod, err := s.client.CoreV1().Pods(tenant).Get(ctx, "nic", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if overhead := pod.Spec.Overhead.Memory(); overhead.Value() != nicOverhead<<20 {
		return fmt.Errorf("the pod's overhead is %s, want %d MiB", overhead, nicOverhead)
	}
	got, err := s.output(ctx, `set -e
cd "$(find /sys/fs/cgroup -type d -name '*pod`+string(pod.UID)+`*' | head -n 1)"
vm=$(tr '\0' ' ' </proc/$(pgrep qemu-system)/cmdline | sed -n 's/.* -m \([0-9]*\)M.*/\1/p')
echo "VM ${vm} MiB, pod $(($(cat memory.max) >> 20)) MiB"
echo "used: $(($(cat memory.current) >> 20)) MiB, at most $(($(cat memory.peak) >> 20)) MiB"`)
	if err != nil {
		return fmt.Errorf("read the VM's memory: %w", err)
	}
	s.log("the pod with a VF only: %s", got)
	want := fmt.Sprintf("VM %d MiB, pod %d MiB\n", nicMemory+nicPodsLimits, nicOverhead+nicPodsLimits)
	if !strings.HasPrefix(got, want) {
		return fmt.Errorf("the node says %q, want %q", got, want)
	}
	return s.logVMsCost(ctx)
}
