package host_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
)

// A GPU's first BAR has 32 GiB.
const largeResource = "0x0000380000000000 0x00003807ffffffff 0x000000000014220c\n0x0000000000000000 0x0000000000000000 0x0000000000000000\n"

func TestSpeedAdvice(t *testing.T) {
	const debian = "Linux version 6.1.0-37-amd64 (debian-kernel@lists.debian.org) #1 SMP Debian 6.1.140-1 (2025-05-22)\n"
	vfs := []v1alpha1.VFRule{{PF: "0000:5e:00.0", Count: new(8)}}
	gpu := tree{"sys/bus/pci/devices/0000:3b:00.0/resource": largeResource}
	oldQEMU := "assets:\n  hypervisor:\n    qemu:\n      version: v9.1.2\n"
	for name, c := range map[string]struct {
		kernel, version, qemu string
		vfs                   []v1alpha1.VFRule
		files                 tree
		iommufd               bool
		advice, facts         []string
	}{
		"Debian's old kernel":      {kernel: "6.1.0-37-amd64", version: debian, vfs: vfs, advice: []string{"VFIO-022"}},
		"no VFs":                   {kernel: "6.1.0-37-amd64", version: debian},
		"Ubuntu's kernel":          {kernel: "6.8.0-64-generic", vfs: vfs, files: gpu, facts: []string{"e908f58b6beb", "0fd06844de5d"}},
		"a large BAR":              {kernel: "6.12.117+deb13-amd64", vfs: vfs, files: gpu, advice: []string{"VFIO-023"}},
		"a large BAR with iommufd": {kernel: "6.12.117+deb13-amd64", vfs: vfs, files: gpu, iommufd: true},
		"a new kernel":             {kernel: "6.17.0", vfs: vfs, files: gpu},
		"an old QEMU":              {kernel: "6.17.0", vfs: vfs, files: gpu, qemu: oldQEMU, advice: []string{"RT-033"}},
		"an old QEMU without need": {kernel: "6.17.0", vfs: vfs, qemu: oldQEMU},
		"damaged versions":         {kernel: "6.17.0", files: gpu, qemu: "assets: ["},
	} {
		files := tree{"proc/version": c.version, "sys/bus/pci/devices/0000:5e:00.0/sriov_totalvfs": "64\n"}
		for file, text := range c.files {
			files[file] = text
			files["sys/bus/pci/devices/0000:3b:00.0"] = "" // a double's directory
		}
		if c.qemu != "" {
			files["opt/kata/versions.yaml"] = c.qemu
		}
		b := blueprint.Default()
		b.VirtualFunctions = c.vfs
		p := &host.Platform{
			Live: true, Systemd: true, IOMMUs: []string{"dmar0"}, Kernel: c.kernel,
			Modules: map[string]host.Module{"vfio_pci": {Loadable: true}, "vfio_iommu_type1": {Loadable: true}, "iommufd": {Loadable: c.iommufd}},
		}
		w := host.Wanted(files, b, p)
		var advice, facts []string
		for _, problem := range w.Problems {
			if problem.Part != "speed" {
				continue
			}
			if problem.Fatal || problem.ByHand || problem.Fix == "" {
				t.Errorf("%s: not advice: %+v", name, problem)
			}
			advice = append(advice, problem.Text)
		}
		for _, fact := range w.Facts {
			if fact.Part == "speed" {
				facts = append(facts, fact.Name)
			}
		}
		hasEach(t, name+": advice", advice, c.advice)
		hasEach(t, name+": facts", facts, c.facts)
	}
}

// hasEach checks that each text contains its word, in order, and that there are no others.
func hasEach(t *testing.T, what string, texts, words []string) {
	t.Helper()
	if len(texts) != len(words) {
		t.Errorf("%s: %q, want %q", what, texts, words)
		return
	}
	for i, word := range words {
		if !strings.Contains(texts[i], word) {
			t.Errorf("%s: %q does not have %q", what, texts[i], word)
		}
	}
}

// An image shows its newest kernel's release only.
func TestSpeedAdviceForImage(t *testing.T) {
	b := blueprint.Default()
	b.VirtualFunctions = []v1alpha1.VFRule{{PF: "0000:5e:00.0", Count: new(8)}}
	w := host.Wanted(tree{"proc/version": "#1 SMP Debian 6.1.140-1"}, b, &host.Platform{Systemd: true, Kernel: "6.12.41+deb13-amd64"})
	if len(w.Problems) != 1 || !strings.Contains(w.Problems[0].Fix, "6.12.42") {
		t.Errorf("problems: %+v", w.Problems)
	}
}
