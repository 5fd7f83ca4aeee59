package device_test

import (
	"errors"
	"path"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// aliases is a part of a modules.alias of Linux 6.12.
const aliases = `# Aliases extracted from modules themselves.
alias pci:v000015B3d0000101Dsv*sd*bc*sc*i* mlx5_core
alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci
alias vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i* mlx5_vfio_pci
alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci
alias fs-ext4 ext4
alias vfio_pci:broken

alias vfio_pci:v00001AF4d00001041sv*sd*bc02sc00i* virtio_vfio_pci
`

func TestParseAliases(t *testing.T) {
	want := []device.Alias{
		{Pattern: "vfio_pci:v*d*sv*sd*bc*sc*i*", Module: "vfio_pci"},
		{Pattern: "vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i*", Module: "mlx5_vfio_pci"},
		{Pattern: "vfio_pci:v000010DEd00002342sv*sd*bc*sc*i*", Module: "nvgrace_gpu_vfio_pci"},
		{Pattern: "vfio_pci:v00001AF4d00001041sv*sd*bc02sc00i*", Module: "virtio_vfio_pci"},
	}
	got, err := device.ParseAliases(strings.NewReader(aliases))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("aliases (-want +got):\n%s", diff)
	}
	broken := errors.New("broken")
	if _, err := device.ParseAliases(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("error of the reader became %v", err)
	}
}

func TestModuleFor(t *testing.T) {
	const text = `
alias pci:v00008086d*sv*sd*bc02sc00i* generic
alias pci:v00008086d000010CAsv*sd*bc*sc*i* igbvf
alias vfio_pci:v00008086d000010CAsv00008086sd*bc*sc*i* special_vfio_pci
alias usb:v00008086d000010CAsv00008086sd*bc*sc*i* none
`
	for modalias, want := range map[string]string{
		"pci:v00008086d000010CAsv00008086sd00000000bc02sc00i00": "igbvf",
		"pci:v00008086d00000001sv00008086sd00000000bc02sc00i00": "generic",
		"pci:v000015B3d00000001sv00008086sd00000000bc02sc00i00": "",
	} {
		if got, err := device.ModuleFor(strings.NewReader(text), modalias); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", modalias, got, err, want)
		}
	}
	broken := errors.New("broken")
	if _, err := device.ModuleFor(iotest.ErrReader(broken), "pci:v"); !errors.Is(err, broken) {
		t.Errorf("error of the reader became %v", err)
	}
}

func TestAliasMatch(t *testing.T) {
	const nic = "pci:v000015B3d0000101Esv000015B3sd00000001bc02sc00i00"
	tests := []struct {
		pattern, modalias string
		want              bool
	}{
		{"vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i*", nic, true},
		{"vfio_pci:v*d*sv*sd*bc*sc*i*", nic, true},
		{"vfio_pci:v000015B3d0000101Esv*sd*bc02sc00i*", nic, true},
		{"vfio_pci:v000015B3d0000101Fsv*sd*bc*sc*i*", nic, false},
		{"vfio_pci:v000015B3d0000101Esv*sd*bc03sc*i*", nic, false},
		{"vfio_pci:v000015B3d0000101E", nic, false},
		{"vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i00", nic, true},
		{"vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i01", nic, false},
		{"vfio_pci:*", nic, true},
		{"vfio_pci:v*", "", false},
		{"vfio_pci:a*a", "pci:a", false}, // the two must not share a letter
	}
	for _, tt := range tests {
		if got := (device.Alias{Pattern: tt.pattern}).Match(tt.modalias); got != tt.want {
			t.Errorf("%s matches %s: %v, want %v", tt.pattern, tt.modalias, got, tt.want)
		}
	}
}

func TestAliasSpecificity(t *testing.T) {
	order := []string{
		"vfio_pci:v*d*sv*sd*bc*sc*i*",
		"vfio_pci:v000015B3d*sv*sd*bc*sc*i*",
		"vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i*",
		"vfio_pci:v000015B3d0000101Esv*sd*bc02sc00i*",
	}
	for i := 1; i < len(order); i++ {
		low, high := device.Alias{Pattern: order[i-1]}, device.Alias{Pattern: order[i]}
		if low.Specificity() >= high.Specificity() {
			t.Errorf("%s (%d) is not below %s (%d)", low.Pattern, low.Specificity(), high.Pattern, high.Specificity())
		}
	}
}

func FuzzAliasMatch(f *testing.F) {
	f.Add("v000015B3d0000101Esv*sd*bc*sc*i*", "v000015B3d0000101Esv000015B3sd00000001bc02sc00i00")
	f.Add("*a*ab", "aab")
	f.Add("a*a", "a")
	f.Fuzz(func(t *testing.T, pattern, text string) {
		if strings.ContainsAny(pattern+text, `?[]\/:`) {
			return // not in the kernel's aliases, and special to path.Match
		}
		want, err := path.Match(pattern, text)
		if err != nil {
			return
		}
		got := device.Alias{Pattern: "vfio_pci:" + pattern}.Match("pci:" + text)
		if got != want {
			t.Errorf("%q matches %q: %v, want %v", pattern, text, got, want)
		}
	})
}

func FuzzParseAliases(f *testing.F) {
	f.Add(aliases)
	f.Add("alias vfio_pci:x y\n")
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := device.ParseAliases(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, a := range parsed {
			if !strings.Contains(text, a.Pattern) || !strings.Contains(text, a.Module) || a.Module == "" {
				t.Errorf("%+v is not in the text", a)
			}
		}
	})
}
