package kernelargs_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

func TestValuesAreReadAsTheKernelReadsThem(t *testing.T) {
	for _, c := range []struct {
		line, name string
		want       []string
	}{
		{"ro intremap=off quiet intremap=nosid", "intremap", []string{"off", "nosid"}},
		{"quiet", "quiet", []string{""}},
		{"vfio_pci.ids=1:2", "vfio-pci.ids", []string{"1:2"}},
		{`dyndbg="file a.c +p" iommu=pt`, "iommu", []string{"pt"}},
		{`x="a b"`, "x", []string{"a b"}},
		{"ro -- iommu=pt", "iommu", nil},
		{"myiommu=pt", "iommu", nil},
	} {
		if diff := cmp.Diff(c.want, kernelargs.Values(c.line, c.name)); diff != "" {
			t.Errorf("%q in %q (-want +got):\n%s", c.name, c.line, diff)
		}
	}
}

// A number of huge pages is of the size that stands before it.
func TestGroupOfWordsIsThereAsAGroupAlone(t *testing.T) {
	for line, want := range map[string]bool{
		"hugepagesz=1G hugepages=4":                              true,
		"ro hugepagesz=2M hugepages=8 hugepagesz=1G hugepages=4": true,
		"hugepagesz=1G quiet hugepages=4":                        true,
		"hugepages=4":                                            false,
		"hugepages=4 hugepagesz=1G":                              false,
		"hugepagesz=1G hugepagesz=2M hugepages=4":                false,
		"hugepagesz=1G hugepages=8 hugepages=4":                  false,
		"hugepagesz=1G -- hugepages=4":                           false,
	} {
		const group = "hugepagesz=1G hugepages=4"
		if got := kernelargs.Has(line, group); got != want {
			t.Errorf("%q: %t, want %t", line, got, want)
		}
		if added := kernelargs.Add(line, group); !kernelargs.Has(added, group) {
			t.Errorf("%q became %q", line, added)
		}
	}
}

func TestAddAppendsWhatIsMissingAndNothingElse(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"", "intel_iommu=on iommu=nopt"},
		{"ro  quiet", "ro  quiet intel_iommu=on iommu=nopt"},
		{"ro intel_iommu=on", "ro intel_iommu=on iommu=nopt"},
		{"iommu=nopt intel-iommu=on ro", "iommu=nopt intel-iommu=on ro"},
		{"ro -- single", "ro intel_iommu=on iommu=nopt -- single"},
		{"ro\t--\tsingle", "ro\t intel_iommu=on iommu=nopt --\tsingle"},
		{`x="a -- b"`, `x="a -- b" intel_iommu=on iommu=nopt`},
		{"ro --", "ro intel_iommu=on iommu=nopt --"},
		{"-- single", "intel_iommu=on iommu=nopt -- single"},
	} {
		got := kernelargs.Add(c.line, "intel_iommu=on", "iommu=nopt")
		if got != c.want {
			t.Errorf("%q became %q, want %q", c.line, got, c.want)
		}
		if again := kernelargs.Add(got, "intel_iommu=on", "iommu=nopt"); again != got {
			t.Errorf("%q is not left alone: %q", got, again)
		}
	}
}
