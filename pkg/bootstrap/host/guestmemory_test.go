package host_test

import (
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// TestKernelThatCannotMapGuests is told before a VM fails to start. The Go runtime can use groups, so it prevents nothing.
func TestKernelThatCannotMapGuests(t *testing.T) {
	const debian = "6.12.117+deb13-amd64"
	for name, c := range map[string]struct {
		kernel, qemu   string
		iommufd, image bool
		problems       int
		facts          int
	}{
		"Kata's QEMU on Debian's kernel": {kernel: debian, qemu: "v11.0.1", iommufd: true, problems: 1},
		"in an image":                    {kernel: debian, qemu: "v11.0.1", iommufd: true, image: true, problems: 1},
		"without iommufd":                {kernel: debian, qemu: "v11.0.1"},
		"an older QEMU":                  {kernel: debian, qemu: "v9.2.0", iommufd: true},
		"a newer kernel":                 {kernel: "6.13.0", qemu: "v11.0.1", iommufd: true},
		"Ubuntu's kernel":                {kernel: "6.8.0-64-generic", qemu: "v11.0.1", iommufd: true, facts: 1},
		"no Kata":                        {kernel: debian, iommufd: true},
	} {
		files := tree{"proc/version": ""}
		if c.qemu != "" {
			files["opt/kata/versions.yaml"] = "assets:\n  hypervisor:\n    qemu:\n      version: " + c.qemu + "\n"
		}
		p := &host.Platform{
			Live: !c.image, Systemd: true, IOMMUs: []string{"dmar0"}, Kernel: c.kernel,
			Modules: map[string]host.Module{"vfio_pci": {Loadable: true}, "vfio_iommu_type1": {Loadable: true}, "iommufd": {Loadable: c.iommufd}},
		}
		w := host.Wanted(files, blueprint.Default(), p)
		problems, facts := 0, 0
		for _, problem := range w.Problems {
			if problem.Code == rule.FileMappingMissing {
				problems++
				if problem.Fatal || !strings.Contains(problem.Text, "QEMU v11.0.1") || !strings.Contains(problem.Fix, "6.13") {
					t.Errorf("%s: %+v", name, problem)
				}
			}
		}
		for _, fact := range w.Facts {
			if fact.Part == "guest memory" {
				facts++
			}
		}
		if problems != c.problems || facts != c.facts {
			t.Errorf("%s: %d problems and %d facts, want %d and %d", name, problems, facts, c.problems, c.facts)
		}
	}
}
