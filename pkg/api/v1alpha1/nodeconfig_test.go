package v1alpha1_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

const nodeHead = "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\n"

func TestDecodeNodeConfig(t *testing.T) {
	got, err := v1alpha1.DecodeNodeConfig([]byte(nodeHead + `
devices:
- name: console
  match: {addresses: ["0000:00:02.0"]}
  exclude: true
- name: gpus
  match: {types: [gpu], vendors: [10de, "0x1002"], classes: ["03", "0302", "120000"]}
  policy: bound
- match: {pfNames: [ens1f0np0], types: [vf]}
  warm: 2
- match: {types: [nvme]}
  warm: 25%
- match: {types: [gpu], vendors: ["1002"]}
  sharedWith: gpu.amd.com
allowedHandlers: [kata-gpu, kata-gpu-snp]
virtualFunctions: [{pf: ens1f0np0, count: 8}, {pf: "0000:3b:00.0", count: 0, eswitchMode: Switchdev}]
pairing: Switch
vfAttributes: Selection
quotaCounters: true
---
`))
	if err != nil {
		t.Fatal(err)
	}
	want := &v1alpha1.NodeConfig{
		TypeMeta: v1alpha1.TypeMeta{APIVersion: v1alpha1.APIVersion, Kind: v1alpha1.KindNodeConfig},
		Devices: []v1alpha1.DeviceRule{
			{Name: "console", Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{{Device: 2}}}, Exclude: true},
			{
				Name: "gpus", Policy: v1alpha1.PolicyBound,
				Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}, Vendors: []pci.ID{0x10de, 0x1002}, Classes: []string{"03", "0302", "120000"}},
			},
			{Match: v1alpha1.DeviceMatch{PFNames: []string{"ens1f0np0"}, Types: []string{"vf"}}, Policy: v1alpha1.PolicyOnDemand, Warm: v1alpha1.Share{Amount: 2}},
			{Match: v1alpha1.DeviceMatch{Types: []string{"nvme"}}, Policy: v1alpha1.PolicyOnDemand, Warm: v1alpha1.Share{Amount: 25, Percent: true}},
			{Match: v1alpha1.DeviceMatch{Types: []string{"gpu"}, Vendors: []pci.ID{0x1002}}, Policy: v1alpha1.PolicyOnDemand, SharedWith: "gpu.amd.com"},
		},
		AllowedHandlers:  []string{"kata-gpu", "kata-gpu-snp"},
		VirtualFunctions: []v1alpha1.VFRule{{PF: "ens1f0np0", Count: new(8)}, {PF: "0000:3b:00.0", Count: new(0), EswitchMode: v1alpha1.EswitchSwitchdev}},
		CNIBinDirs:       []string{v1alpha1.DefaultCNIBinDir},
		Pairing:          v1alpha1.PairingSwitch,
		VFAttributes:     v1alpha1.VFAttributesSelection,
		QuotaCounters:    true,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeVirtualFunctionsRefuses(t *testing.T) {
	for in, want := range map[string]string{
		`[{pf: ens1f0np0}]`:            "virtualFunctions[0].count: missing",
		`[{count: 8}]`:                 `virtualFunctions[0].pf: "" is neither an address`,
		`[{pf: a/b, count: 8}]`:        `virtualFunctions[0].pf: "a/b" is neither an address`,
		`[{pf: ens1f0np0, count: -1}]`: "virtualFunctions[0].count: -1 is not a number from 0 to 65535",
		`[{pf: ens1f0np0, count: 1, eswitchMode: switchdev}]`:    `virtualFunctions[0].eswitchMode: "switchdev" is not one of Legacy, Switchdev`,
		`[{pf: ens1f0np0, count: 8}, {pf: ens1f0np0, count: 4}]`: "virtualFunctions[1].pf: \"ens1f0np0\" is named by virtualFunctions[0] too",
	} {
		_, err := v1alpha1.DecodeNodeConfig([]byte(nodeHead + "virtualFunctions: " + in + "\n"))
		if err == nil || !strings.Contains(withoutLines(err), want) {
			t.Errorf("%s: %v, want %q", in, err, want)
		}
	}
}

func TestDecodeNodeConfigTellsNotSaidFromEmpty(t *testing.T) {
	got, err := v1alpha1.DecodeNodeConfig([]byte(nodeHead))
	if err != nil || got.Devices != nil || !cmp.Equal(got.AllowedHandlers, []string{"kata-gpu"}) {
		t.Errorf("not said: got %+v, %v", got, err)
	}
	got, err = v1alpha1.DecodeNodeConfig([]byte(nodeHead + "devices: []\n"))
	if err != nil || got.Devices == nil || len(got.Devices) != 0 {
		t.Errorf("empty: got %+v, %v", got, err)
	}
}

func TestDecodeNodeConfigRefuses(t *testing.T) {
	rule := func(match string) string { return nodeHead + "devices:\n- match: " + match + "\n" }
	tests := map[string]struct{ in, want string }{
		"empty":           {"", "NodeConfig: the document is empty"},
		"comment":         {"# nothing\n", "NodeConfig: the document is empty"},
		"no YAML":         {"a: [", "NodeConfig: parse YAML: "},
		"a text":          {"gpu", `NodeConfig: "gpu" is not an object`},
		"two documents":   {nodeHead + "---\n" + nodeHead, "NodeConfig: more than one YAML document; want one"},
		"repeated key":    {nodeHead + "kind: NodeConfig\n", `key "kind" already set`},
		"another kind":    {"apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: VFConfig\n", `NodeConfig: kind: "VFConfig" is not NodeConfig`},
		"another version": {"apiVersion: v1\nkind: ConfigMap\n", `NodeConfig: apiVersion: "v1" is not a version that this plugin reads; it reads resource.kata-vfio.dev/v1alpha1`},
		"unknown field":   {nodeHead + "device: []\n", "NodeConfig: device: no such field; the fields here are apiVersion, kind, devices, gpuSlices, allowedHandlers"},
		"unknown deeper":  {rule("{vendor: [10de]}"), "NodeConfig: devices[0].match.vendor: no such field; the fields here are types, vendors, devices, classes, addresses, pfNames"},
		"no list":         {nodeHead + "devices: {}\n", "NodeConfig: devices: {} is not a list"},
		"null entry":      {nodeHead + "devices:\n- \n", "NodeConfig: devices[0]: null is not a list entry; remove it"},
		"unquoted digits": {rule("{vendors: [8086]}"), "NodeConfig: devices[0].match.vendors[0]: 8086 is not a string; put it in quotes"},
		"bad id":          {rule("{vendors: [10dez]}"), `NodeConfig: devices[0].match.vendors[0]: "10dez" is not 4 hexadecimal digits`},
		"bad address":     {rule(`{addresses: ["3b:00.0"]}`), `NodeConfig: devices[0].match.addresses[0]: "3b:00.0" is not a PCI address (want domain:bus:device.function, such as 0000:3b:00.0)`},
		"no match":        {nodeHead + "devices:\n- name: a\n", "NodeConfig: devices[0].match: empty; set at least one of types,"},
		"empty match":     {rule("{}"), "NodeConfig: devices[0].match: empty; set at least one of types,"},
		"empty list":      {rule("{types: []}"), "NodeConfig: devices[0].match.types: the list is empty, so that the rule matches nothing; remove it or fill it"},
		"bad type":        {rule("{types: [bridge]}"), `NodeConfig: devices[0].match.types[0]: "bridge" is not one of gpu, pf, vf, gpuvf, nvme, accelerator, other`},
		"empty type":      {rule(`{types: [""]}`), `NodeConfig: devices[0].match.types[0]: "" is not one of gpu,`},
		"bad class":       {rule(`{classes: ["3"]}`), `NodeConfig: devices[0].match.classes[0]: "3" is not a class; want the first two, four or six hexadecimal digits`},
		"class with 0x":   {rule(`{classes: ["0x0302"]}`), `NodeConfig: devices[0].match.classes[0]: "0x0302" is not a class`},
		"device alone":    {rule(`{devices: ["2330"]}`), "NodeConfig: devices[0].match.devices: needs vendors"},
		"PF by its name":  {rule(`{pfNames: [eth0], types: [pf, vf]}`), `NodeConfig: devices[0].match.types[0]: "pf" never matches beside pfNames`},
		"bad netdev":      {rule(`{pfNames: ["eth/0"]}`), `NodeConfig: devices[0].match.pfNames[0]: "eth/0" is not a network interface name`},
		"bad policy":      {rule("{types: [gpu]}") + "  policy: Bound\n", `NodeConfig: devices[0].policy: "Bound" is not one of bound, onDemand`},
		"useless policy":  {rule("{types: [gpu]}") + "  policy: bound\n  exclude: true\n", `NodeConfig: devices[0].policy: "bound" says nothing where exclude is true`},
		"negative share":  {rule("{types: [gpu]}") + "  warm: -1\n", `NodeConfig: devices[0].warm: -1 is neither a number of devices such as 2 nor a percentage such as "25%"`},
		"quoted number":   {rule("{types: [gpu]}") + "  warm: '2'\n", `NodeConfig: devices[0].warm: "2" is neither a number`},
		"half a device":   {rule("{types: [gpu]}") + "  warm: 0.5\n", `NodeConfig: devices[0].warm: 0.5 is neither a number`},
		"over all":        {rule("{types: [gpu]}") + "  warm: 101%\n", `NodeConfig: devices[0].warm: "101%" is neither a number`},
		"warm and bound":  {rule("{types: [gpu]}") + "  policy: bound\n  warm: 2\n", `NodeConfig: devices[0].warm: 2 says nothing where policy is bound`},
		"warm, excluded":  {rule("{types: [gpu]}") + "  exclude: true\n  warm: 2\n", `NodeConfig: devices[0].warm: 2 says nothing where exclude is true`},
		"shared, bound":   {rule("{types: [gpu]}") + "  policy: bound\n  sharedWith: gpu.example.com\n", `NodeConfig: devices[0].sharedWith: "gpu.example.com" needs policy onDemand`},
		"shared and warm": {rule("{types: [gpu]}") + "  warm: 1\n  sharedWith: gpu.example.com\n", `NodeConfig: devices[0].sharedWith: "gpu.example.com" can't be combined with warm`},
		"shared, left":    {rule("{types: [gpu]}") + "  exclude: true\n  sharedWith: gpu.example.com\n", `NodeConfig: devices[0].sharedWith: "gpu.example.com" says nothing where exclude is true`},
		"shared, any":     {rule("{vendors: [10de]}") + "  sharedWith: gpu.example.com\n", `NodeConfig: devices[0].match.types: a rule with sharedWith is for GPUs only`},
		"shared VFs":      {rule("{types: [gpu, vf]}") + "  sharedWith: gpu.example.com\n", `NodeConfig: devices[0].match.types: a rule with sharedWith is for GPUs only`},
		"shared, ours":    {rule("{types: [gpu]}") + "  sharedWith: kata-vfio.dev\n", `NodeConfig: devices[0].sharedWith: "kata-vfio.dev" is this driver`},
		"shared, no name": {rule("{types: [gpu]}") + "  sharedWith: NVIDIA/gpu\n", `NodeConfig: devices[0].sharedWith: "NVIDIA/gpu" is not the name of a DRA driver`},
		"exclusive, left": {rule("{types: [gpu]}") + "  exclude: true\n  exclusive: [Card]\n", `NodeConfig: devices[0].exclusive: says nothing where exclude is true; remove one of the two`},
		"exclusive, shared": {
			rule("{types: [gpu]}") + "  sharedWith: gpu.example.com\n  exclusive: [Card]\n",
			`NodeConfig: devices[0].exclusive: can't hold where sharedWith is set: containers of any tenant get such GPUs by the other driver; remove one of the two`,
		},
		"exclusive, of what": {
			rule("{types: [gpu]}") + "  exclusive: [Rack]\n", `NodeConfig: devices[0].exclusive[0]: "Rack" is not one of Card, PF, Switch, RootPort, NUMA, Node, Fabric`,
		},
		"exclusive, twice": {rule("{types: [gpu]}") + "  exclusive: [Card, NUMA, Card]\n", `NodeConfig: devices[0].exclusive[2]: "Card" is in the list twice`},
		"exclusive, empty": {rule("{types: [gpu]}") + "  exclusive: ['']\n", `NodeConfig: devices[0].exclusive[0]: empty; name a domain such as Card`},
		"reserve nothing":  {rule("{types: [gpu]}") + "  reserveDomains: true\n", `NodeConfig: devices[0].reserveDomains: there are no domains to reserve: add exclusive`},
		"bad attributes":   {nodeHead + "vfAttributes: Few\n", `NodeConfig: vfAttributes: "Few" is not one of All, Selection`},
		"bad pairing":      {nodeHead + "pairing: NUMA\n", `NodeConfig: pairing: "NUMA" is not one of None, Switch, Root`},
		"same name": {
			nodeHead + "devices:\n- {name: a, match: {types: [gpu]}}\n- {name: a, match: {types: [vf]}}\n",
			`NodeConfig: devices[1].name: "a" is the name of devices[0] too; no two rules may have one name`,
		},
		"no handlers": {nodeHead + "allowedHandlers: []\n", "NodeConfig: allowedHandlers: the list is empty"},
		"bad handler": {nodeHead + "allowedHandlers: [Kata]\n", `NodeConfig: allowedHandlers[0]: "Kata" is not a RuntimeClass handler`},
		"all at once": {
			nodeHead + "devices:\n- {match: {types: [x], classes: [z]}}\n- {match: {}}\n",
			`NodeConfig: devices[0].match.types[0]: "x" is not one of gpu, pf, vf, gpuvf, nvme, accelerator, other; devices[0].match.classes[0]: "z" is not a class; ` +
				`want the first two, four or six hexadecimal digits of the class code such as "0302"; devices[1].match: empty;`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := v1alpha1.DecodeNodeConfig([]byte(test.in))
			if _, ok := errors.AsType[*v1alpha1.InvalidError](err); !ok {
				t.Fatalf("got %v, want an InvalidError", err)
			}
			if !strings.Contains(withoutLines(err), test.want) {
				t.Errorf("got  %s\nwant %s", err, test.want)
			}
		})
	}
}

func FuzzDecodeNodeConfig(f *testing.F) {
	for _, seed := range []string{
		nodeHead, nodeHead + "devices: []", nodeHead + "devices:\n- match: {types: [gpu], vendors: [10de]}\n  policy: bound\n",
		nodeHead + "devices:\n- match: &a {addresses: ['0000:3b:00.0']}\n- match: *a\n", nodeHead + "devices:\n- match: {pfNames: [eth0]}\n",
		"--- \n---\n", "? {a: b}\n: c", "a: *a", "!!binary x",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := v1alpha1.DecodeNodeConfig(text)
		if err != nil {
			var invalid *v1alpha1.InvalidError
			if !errors.As(err, &invalid) || len(invalid.Problems) == 0 {
				t.Errorf("got %v, want an InvalidError with problems", err)
			}
			return
		}
		again, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		d, err := v1alpha1.DecodeNodeConfig(again)
		if err != nil {
			t.Fatalf("%q was accepted, its own output is not: %v\n%s", text, err, again)
		}
		if diff := cmp.Diff(c, d); diff != "" {
			t.Errorf("%q changes when written and read again:\n%s", text, diff)
		}
	})
}
