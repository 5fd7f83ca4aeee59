package output_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// planted is in every credential of the tests.
const planted = "hunter2hunter2"

func TestCredentialsAreTakenOut(t *testing.T) {
	for name, text := range map[string]string{
		"TOML":                  "[plugins.registry.auth]\n  password = \"" + planted + "\"\n",
		"TOML, single quotes":   "password = '" + planted + "'\n",
		"YAML":                  "  token: " + planted + "\n",
		"JSON":                  `{"auths":{"r.example":{"auth":"` + planted + `"}}}`,
		"JSON in JSON":          `{"annotation":"{\"password\":\"` + planted + `\"}"}`,
		"an environment":        "AWS_SECRET=x\nMY_API_KEY=" + planted + "\n",
		"a flag":                "kubelet --token " + planted + " --v 2",
		"a flag, NUL":           "kubelet\x00--bootstrap-token\x00" + planted + "\x00--v\x002\x00",
		"a flag, =":             "--password=" + planted,
		"a header":              "Authorization: Bearer " + planted,
		"a header in a log":     `msg="GET" header="bearer ` + planted + `"`,
		"a URL":                 "https://ops:" + planted + "@registry.example/v2",
		"a key":                 "-----BEGIN EC PRIVATE KEY-----\n" + planted + "\n-----END EC PRIVATE KEY-----\n",
		"a key that is cut off": "-----BEGIN PRIVATE KEY-----\n" + planted,
		"a JWT":                 "got eyJhbGciOiJSUzI1NiJ9." + planted + ".sig-" + planted,
		"a kubeconfig":          "apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user:\n    something-new: " + planted + "\n",
		"two lines in JSON":     `{"data":"token: A\npassword: ` + planted + `\n"}`,
		"two lines in a log":    `msg="token: A\npassword: ` + planted + `\nx"`,
		"a block of YAML":       "password: |\n  " + planted + "\n\n  " + planted + "\nuser: bob\n",
		"a block in a list":     "- token: >- # folded\n    " + planted + "\n- name: x\n",
		"lines of TOML":         "password = \"\"\"\n" + planted + "\n\"\"\"\nuser = \"bob\"\n",
		"lines of TOML, single": "password = '''a\n" + planted + "'''\n",
		"no end":                "password = \"\"\"\n" + planted,
		"K3s' key of S3":        "etcd-s3-secret-key: " + planted + "\n",
		"K3s' flag of S3":       "k3s server --etcd-s3-secret-key " + planted + " --v 2",
		"K3s' datastore":        "datastore-endpoint: mysql://root:" + planted + "@tcp(db)/k3s\n",
		"key data":              "    client-key-data: " + planted + "\n",
		// A bracket or another separator does not make a credential a structure, nor end it.
		"TOML, a bracket":           "password = \"[x9!" + planted + "\"\n",
		"TOML, a list's form":       "password = \"[1]" + planted + "\"\n",
		"TOML, an escaped quote":    "password = \"a\\\"" + planted + "\"\n",
		"TOML, three quotes":        "password = \"\"\"" + planted + "\"\"\"\n",
		"TOML, three single quotes": "password = '''" + planted + "'''\n",
		"TOML, no end of quotes":    "password = \"" + planted + "\n",
		"TOML, JSON":                "auth = \"{\\\"password\\\":\\\"[" + planted + "\\\"}\"\n",
		"TOML, JSON, single quotes": "auth = '{\"args\":[\"--password\",\"" + planted + "\"]}'\n",
		"TOML, a list of JSON":      "token = '[\"" + planted + "\"]'\n",
		"YAML, a brace":             "token: \"{" + planted + "\"\n",
		"YAML, quotes in quotes":    "token: 'a''" + planted + "'\n",
		"YAML, braces":              "auth: {password: " + planted + "}\n",
		"YAML, compact braces":      "auth={password=" + planted + "}\n",
		"YAML, a comma":             "  password: aB3," + planted + "\n",
		"YAML, a semicolon":         "- token: aB3;" + planted + "  # of ours\n",
		"YAML, a brace within":      "\"token\": aB3}" + planted + "\n",
		"YAML, a bracket within":    "#password: aB3]" + planted + "\r\n",
		"YAML, a quote within":      "password: aB3\"" + planted + "\n",
		"YAML, a quote at its end":  "password: aB3'" + planted + "'\n",
		"YAML, a space":             "password: aB3 " + planted,
		"INI, a bracket":            "password=[x9!" + planted + "]\n",
		"INI, a closing bracket":    "password=]x9," + planted + "\n",
		"INI, another key in it":    "password=aB3,token=x," + planted + "\n",
		"an environment, NUL":       "A=b\x00MY_TOKEN=aB3," + planted + "\x00C=d\x00",
		"a shell's environment":     "export MY_TOKEN=aB3;" + planted + "\n",
		"a unit's environment":      "Environment=\"MY_TOKEN=aB3;" + planted + "\"\n",
		"a flag, =, a comma":        "kubelet --v=2 --token=aB3,{" + planted + " --x=y\n",
		"a flag, in a string":       `msg="run --token=aB3;` + planted + `" user=bob`,
		"a cut-off string of JSON":  `{"a":1,"password":"x ` + planted,
		"an escape in JSON in JSON": `{"annotation":"{\"password\":\"a\\\"` + planted + `\"}"`,
	} {
		if got := string(output.Scrub([]byte(text))); strings.Contains(got, planted) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := string(output.Scrub([]byte("join abcdef.0123456789abcdef now"))); strings.Contains(got, "0123456789abcdef") {
		t.Errorf("a bootstrap token: %q", got)
	}
}

// TestCredentialsInJSONAreTakenOut: by the key of the string, and in a string that is a document itself.
func TestCredentialsInJSONAreTakenOut(t *testing.T) {
	for name, doc := range map[string]string{
		"a brace":            `{"password":"{` + planted + `"}`,
		"a bracket":          `{"password":"[` + planted + `"}`,
		"a list in a string": `{"password":"[\"` + planted + `\"]"}`,
		"an object":          `{"auth":"{\"password\":\"[` + planted + `\"}"}`,
		"flags in an object": `{"last-applied":"{\"args\":[\"--password\",\"` + planted + `\"]}"}`,
		"YAML":               `{"config":"password: aB3,` + planted + `\nuser: bob\n"}`,
	} {
		if got := string(output.ScrubJSON([]byte(doc))); strings.Contains(got, planted) || !json.Valid([]byte(got)) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestScrubKeepsOtherWords(t *testing.T) {
	for _, text := range []string{
		"authorization-mode: Webhook\n", "authentication-token-webhook=true", "secretName: tls\n", `"automountServiceAccountToken": false`,
		"enable_iommu = true\nhot_plug_vfio = \"root-port\"\n", "token:\n  mode: x\n", "0000:3b:00.0 bound to vfio-pci", "kind: KubeletConfiguration\n",
		"{authorization: {mode: Webhook}, authentication: {anonymous: {enabled: false}}}", "nvidia.com/gpu: 1", "password: \"\"",
		"token: true # read from a file\n", `"secret": false}`, `"authorization": null,` + "\n",
		"--anonymous-auth=false,", "auth = {}\n", "auth = { mode = \"x\" }\n", "auth: [\n", "secret:\r\n",
		`{\"auth\": {\n  \"mode\": \"x\"}}`, "auth = '{\"mode\":\"x\"}'\n", `auth = "{\"mode\":\"x\"}"` + "\n", `msg="no token:" pod=a`,
		"password = \"\"\"\"\"\"\n",
	} {
		if got := string(output.Scrub([]byte(text))); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// TestScrubbedDocumentIsOneStill: strings are scrubbed as the texts that they are, by their
// keys, and in lists by the flags before them; all else stays, the order too.
func TestScrubbedDocumentIsOneStill(t *testing.T) {
	doc := `{"z": {"data": {"a.yaml": "token: A\npassword: ` + planted + `\nuser: bob"}}, "args": ["--password", "` + planted + `", "--v", "2"],
 "registryToken": "` + planted + `", "n": 1.50, "auth": {"mode": "x"}, "token": true, "key": "a\tb", "last": "` + planted[:3] + `"}`
	want := `{"z": {"data": {"a.yaml": "token: \"-\"\npassword: \"-\"\nuser: bob"}}, "args": ["--password", "-", "--v", "2"],
 "registryToken": "-", "n": 1.50, "auth": {"mode": "x"}, "token": true, "key": "a\tb", "last": "` + planted[:3] + `"}`
	if got := string(output.ScrubJSON([]byte(doc))); got != want || !json.Valid([]byte(got)) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	lines := `{"token":"` + planted + `"}` + "\nno JSON: token: " + planted + "\n" + `{"a":1}` + "\n"
	if got, want := string(output.ScrubJSON([]byte(lines))), `{"token":"-"}`+"\nno JSON: token: \"-\"\n"+`{"a":1}`+"\n"; got != want {
		t.Errorf("lines: %q, want %q", got, want)
	}
}

// TestWhatIsBehindACredentialStays where its form says where it ends.
func TestWhatIsBehindACredentialStays(t *testing.T) {
	for text, want := range map[string]string{
		"  password: a,b c  # of ours\n":        "  password: \"-\"  # of ours\n",
		"password: a,b\r\nuser: bob\r\n":        "password: \"-\"\r\nuser: bob\r\n",
		"A=b\x00MY_TOKEN=a,b\x00C=d\x00":        "A=b\x00MY_TOKEN=\"-\"\x00C=d\x00",
		"level=info token=a user=bob":           "level=info token=\"-\" user=bob",
		"{user: bob, token: a, mode: x}":        "{user: bob, token: \"-\", mode: x}",
		"--token=a,b --v=2":                     "--token=\"-\" --v=2",
		`"token": "a", "mode": "x"`:             `"token": "-", "mode": "x"`,
		"auth: {user: bob, password: a}\n":      "auth: {user: bob, password: \"-\"}\n",
		`auth = '{"mode":"x","password":"[a"}'`: `auth = '{"mode":"x","password":"-"}'`,
	} {
		if got := string(output.Scrub([]byte(text))); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

// TestLinesBehindACredentialStay where they are none of it.
func TestLinesBehindACredentialStay(t *testing.T) {
	for text, want := range map[string]string{
		"a:\n  password: |\n    x\n  user: bob\n":        "a:\n  password: \"-\"\n  user: bob\n",
		"password = \"\"\"\nx\n\"\"\"\nuser = \"bob\"\n": "password = \"-\"\nuser = \"bob\"\n",
		"description: |\n  about a token\n":              "description: |\n  about a token\n",
	} {
		if got := string(output.Scrub([]byte(text))); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}
