package v1alpha1_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

func TestGPUSlices(t *testing.T) {
	const head = "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\ngpuSlices: "
	for text, want := range map[string]string{
		`[{name: mi300x, match: {vendors: ["1002"], devices: ["74a1"]}}, {match: {addresses: ["0000:3b:00.0"]}}]`: "",
		`[{match: {}}]`:                  `NodeConfig: gpuSlices[0].match: empty; set at least one of vendors, devices, addresses (addresses: ["0000:3b:00.0"] for one GPU)`,
		`[{match: {vendors: []}}]`:       `NodeConfig: gpuSlices[0].match.vendors: the list is empty, so that the rule matches nothing; remove it or fill it`,
		`[{match: {devices: ["74a1"]}}]`: `NodeConfig: gpuSlices[0].match.devices: needs vendors: a device id means something only to its vendor`,
		`[{match: {types: [gpu]}}]`:      `NodeConfig: gpuSlices[0].match.types: no such field; the fields here are vendors, devices, addresses`,
		`[{name: a, match: {vendors: ["1002"]}}, {name: a, match: {vendors: ["8086"]}}]`: `NodeConfig: gpuSlices[1].name: "a" is the name of gpuSlices[0] too; no two rules may have one name`,
	} {
		got := ""
		if _, err := v1alpha1.DecodeNodeConfig([]byte(head + text + "\n")); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
