package dra_test

import (
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// lossesByUID has the latest loss of each claim.
type lossesByUID map[string]string

func (l lossesByUID) Note(uid, why string) {
	if l[uid] = why; why == "" {
		delete(l, uid)
	}
}

// TestLossIsForgottenWithTheClaim: the kubelet can unprepare a claim before the repair looks, which then no longer knows it. A claim that keeps
// its devices keeps its loss.
func TestLossIsForgottenWithTheClaim(t *testing.T) {
	for name, test := range map[string]struct {
		uid    string
		change func(n *plugintest.Node, gpu pci.Address)
		left   int
	}{
		"unprepared":        {uid: "uid-1"},
		"not prepared here": {uid: "uid-2"},
		"quarantined": {uid: "uid-1", change: func(n *plugintest.Node, gpu pci.Address) {
			n.Kernel.OnReset(gpu, func(string) (sysfstest.ResetEffect, error) { return 0, unix.EIO })
		}},
		"in use": {uid: "uid-1", left: 1, change: func(n *plugintest.Node, gpu pci.Address) {
			group, _ := n.Kernel.Group(gpu)
			n.Kernel.Hold("/dev/vfio/"+itoa(group), 1<<22+1, "qemu-system-x86", "")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			n := plugintest.New(t)
			gpu := n.Kernel.AddGPU(0x3b)
			n.Prepare("uid-1", "gpu-0000-3b-00-0")
			if test.change != nil {
				test.change(n, gpu)
			}
			client, losses := plugintest.Cluster(), lossesByUID{test.uid: "its allocation was withdrawn"}
			p := dra.NewPlugin(dra.PluginConfig{
				Client: client, Claims: n.Claims, Metrics: n.Metrics, Log: plugintest.Quiet(), Changes: plugintest.NewWakes(), Losses: losses,
				Reporter: dra.NewReporter(dra.ReporterConfig{Client: client, Recorder: &plugintest.EventLog{}, Log: plugintest.Quiet()}),
			})
			uid := types.UID(test.uid)
			errs, err := p.UnprepareResourceClaims(t.Context(), []kubeletplugin.NamespacedObject{
				{NamespacedName: types.NamespacedName{Namespace: "team-a", Name: "claim-uid-1"}, UID: uid},
			})
			if err != nil || (errs[uid] != nil) != (test.left > 0) || len(losses) != test.left {
				t.Errorf("Unprepare = %v, %v; losses %v, want %d", errs[uid], err, losses, test.left)
			}
		})
	}
}
