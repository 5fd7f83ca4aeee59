package cdi_test

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// The spec of a claim has the VFIO node of each of its devices.
func ExampleSpec() {
	p := &plan.Plan{
		Claim:   plan.Ref{UID: "0f8fad5b", Namespace: "tenant-a", Name: "gpu"},
		Devices: []plan.Device{{Name: "gpu-0000-3b-00-0"}},
	}
	spec, err := cdi.Spec(p, [][]cdi.Node{{{Path: "/dev/vfio/15", Major: 511, Minor: 3}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(spec); err != nil {
		fmt.Println(err)
	}
	fmt.Println(cdi.QualifiedName(p.Claim.UID, p.Devices[0].Name))
	// Output:
	// {
	//   "cdiVersion": "0.5.0",
	//   "kind": "kata-vfio.dev/vfio",
	//   "devices": [
	//     {
	//       "name": "0f8fad5b-gpu-0000-3b-00-0",
	//       "containerEdits": {
	//         "deviceNodes": [
	//           {
	//             "path": "/dev/vfio/15",
	//             "type": "c",
	//             "major": 511,
	//             "minor": 3,
	//             "permissions": "rw"
	//           }
	//         ]
	//       }
	//     }
	//   ],
	//   "containerEdits": {}
	// }
	// kata-vfio.dev/vfio=0f8fad5b-gpu-0000-3b-00-0
}

// The directory has one file for each claim, which containerd and Kata read.
func ExampleDir() {
	path, err := os.MkdirTemp("", "cdi")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(path)
	dir, err := cdi.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := &plan.Plan{Claim: plan.Ref{UID: "0f8fad5b"}, Devices: []plan.Device{{Name: "gpu-0000-3b-00-0"}}}
	spec, err := cdi.Spec(p, [][]cdi.Node{{{Path: "/dev/vfio/15", Major: 511, Minor: 3}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("written:", dir.Write(p.Claim.UID, spec))
	fmt.Println(dir.Claims())
	fmt.Println("removed:", dir.Remove(p.Claim.UID))
	fmt.Println(dir.Claims())
	// Output:
	// written: <nil>
	// [0f8fad5b] <nil>
	// removed: <nil>
	// [] <nil>
}
