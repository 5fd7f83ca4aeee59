package nri_test

import (
	"fmt"
	"testing"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// BenchmarkCreateContainer checks a container on a node with 200 pods that have
// a device each: one with a device, and one without, as nearly all are.
func BenchmarkCreateContainer(b *testing.B) {
	n, r := newNode(b), rules()
	for i := range 200 {
		n.prepare(fmt.Sprintf("c%d", i), fmt.Sprintf("p%d", i), fmt.Sprintf("s%d", i), nil, device{
			"gpu", pci.Address{Bus: uint8(i)}, []cdi.Node{{Path: fmt.Sprintf("/dev/vfio/%d", i), Major: 511, Minor: int64(i)}},
		})
	}
	own := device{"gpu", pci.Address{Bus: 100}, []cdi.Node{{Path: "/dev/vfio/100", Major: 511, Minor: 100}}}
	for name, c := range map[string]*api.Container{"with": with("c100", own), "without": plain(nil)} {
		b.Run(name, func(b *testing.B) {
			p := pod("p100", "s100")
			for b.Loop() {
				if refused := r.Container(n.table, n.kernel, p, c, nil); refused != nil {
					b.Fatal(refused)
				}
			}
		})
	}
}
