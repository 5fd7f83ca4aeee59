package v1alpha1_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// withoutLines returns the error's text without line numbers, for tests of what is wrong rather than where.
func withoutLines(err error) string {
	return regexp.MustCompile(`line \d+: ([a-zA-Z]+[^: ]*: )`).ReplaceAllString(err.Error(), "$1")
}

func TestNodeConfigErrorsNameTheLine(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown field":          {nodeHead + "device: []\n", "NodeConfig: line 3: device: no such field"},
		"unknown field, deeper":  {nodeHead + "devices:\n- match:\n    types: [gpu]\n    vendor: 10de\n", "line 6: devices[0].match.vendor: no such field"},
		"wrong type":             {nodeHead + "devices:\n- match:\n    types: [gpu]\n    vendors:\n    - 10de\n    - 8086\n", "line 8: devices[0].match.vendors[1]: 8086 is not a string"},
		"wrong value":            {nodeHead + "\n# slow\ndevices:\n- match: {types: [gpu]}\n  policy: Bound\n", "line 7: devices[0].policy: "},
		"a list below its key":   {nodeHead + "allowedHandlers:\n- kata-gpu\n- KATA\n", "line 5: allowedHandlers[1]: "},
		"a field that is absent": {nodeHead + "devices:\n- match: {types: [gpu]}\nvirtualFunctions:\n- pf: ens1f0np0\n", "line 6: virtualFunctions[0].count: missing"},
		"another kind":           {"# a comment\napiVersion: resource.kata-vfio.dev/v1alpha1\nkind: VFConfig\n", "line 3: kind: "},
		"two problems":           {nodeHead + "pairing: Bus\nvfAttributes: Some\n", "line 4: vfAttributes: "},
		"JSON":                   {"{\"apiVersion\": \"resource.kata-vfio.dev/v1alpha1\",\n \"kind\": \"NodeConfig\",\n \"pairing\": \"Bus\"}", "line 3: pairing: "},
		"an alias":               {nodeHead + "devices:\n- &a\n  match: {type: [gpu]}\n- *a\n", "line 6: devices[1].match.type: "},
		"a quoted name":          {nodeHead + "devices:\n- 'a.b': 1\n", `line 4: devices[0]["a.b"]: no such field`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := v1alpha1.DecodeNodeConfig([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestSanitizersErrorsNameTheLine(t *testing.T) {
	_, err := v1alpha1.DecodeSanitizers([]byte(stages + "profile: []\n"))
	if want := "Sanitizers: line 8: profile: no such field"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
