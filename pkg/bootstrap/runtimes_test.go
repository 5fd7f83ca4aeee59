package bootstrap_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
)

// engine is a node's container runtime as it is before, and which of Kata's runtimes it gets.
type engine struct {
	name, kata string
	options    blueprint.Containers
	files      map[string]string
}

// engines are containerd by each version of its configuration, and CRI-O, with Kata in Go and in Rust, cold and hot, with and without the handler for
// NICs.
func engines() []engine {
	var all []engine
	for _, o := range []blueprint.Containers{
		{Kata: blueprint.FlavorGo},
		{Kata: blueprint.FlavorRust, Base: blueprint.BaseNIC},
		{Kata: blueprint.FlavorGo, HotPlug: true},
		{Kata: blueprint.FlavorGo, NICHandler: true},
		{Kata: blueprint.FlavorRust, Base: blueprint.BaseNIC, NICHandler: true},
	} {
		kata := string(o.Kata)
		if o.HotPlug {
			kata += ", hot plug"
		}
		if o.NICHandler {
			kata += ", kata-vfio"
		}
		for version, pack := range map[int]string{2: "2.0.0-1", 3: "2.1.4-1", 4: "2.4.2-1"} {
			all = append(all, engine{fmt.Sprintf("containerd %s, version %d", pack, version), kata, o, containerd(version, pack)})
		}
		all = append(all, engine{"CRI-O", kata, o, crio()})
	}
	slices.SortFunc(all, func(a, b engine) int { return strings.Compare(a.name+a.kata, b.name+b.kata) })
	return all
}

// bothKatas has what Kata ships for its runtime in Rust, beside that in Go, which every node here has.
func bothKatas(more map[string]string) map[string]string {
	const shipped = "opt/kata/share/defaults/kata-containers/"
	all := map[string]string{
		"opt/kata/runtime-rs/bin/containerd-shim-kata-v2": "ELF", shipped + "configuration-qemu.toml": kataBase, shipped + "runtime-rs/configuration-qemu-runtime-rs.toml": kataBase,
	}
	maps.Copy(all, more)
	return all
}

// containerd has a site's own configuration, with comments and without an import.
func containerd(version int, pack string) map[string]string {
	cri := "io.containerd.cri.v1.runtime"
	if version == 2 {
		cri = "io.containerd.grpc.v1.cri"
	}
	return bothKatas(map[string]string{
		"etc/containerd/config.toml": fmt.Sprintf("# a site's\nversion = %d\n\n[plugins.\"%s\".containerd]\n  default_runtime_name = \"runc\" # keep\n"+
			"  [plugins.\"%[2]s\".containerd.runtimes.runc]\n    runtime_type = \"io.containerd.runc.v2\"", version, cri),
		"var/lib/dpkg/status": "Package: containerd\nStatus: install ok installed\nVersion: " + pack + "\n",
	})
}

func crio() map[string]string {
	return bothKatas(map[string]string{
		"usr/bin/crio": "", "usr/lib/systemd/system/crio.service": "[Service]\nExecStart=/usr/bin/crio\n",
		"etc/crio/crio.conf":                "[crio.runtime]\ndefault_runtime = 'crun'\n[crio.runtime.runtimes.crun]\nruntime_path = '/usr/bin/crun'\n[crio.nri]\nenable_nri = false\n",
		"var/lib/kubelet/kubeadm-flags.env": `KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///var/run/crio/crio.sock"` + "\n",
	})
}

// enginesOf are all engines for the first distribution with a boot loader, and one, another each time, for the others.
func enginesOf(i int) []engine {
	all, ds := engines(), distributions()
	first := slices.IndexFunc(ds, func(d distribution) bool { return d.loader == ds[i].loader })
	if first == i {
		return all
	}
	return all[i%len(all):][:1]
}
