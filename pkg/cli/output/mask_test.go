package output_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

func TestNamesAreReplacedWhereverTheyStand(t *testing.T) {
	m := output.NewMask()
	m.Hide("acme", "acme-prod", "train.v2", "default", "")
	pseudonym := func(name string) string { return string(m.Apply([]byte(name))) }
	if p := pseudonym("acme"); !regexp.MustCompile(`^name-[0-9a-f]{12}$`).MatchString(p) || p == pseudonym("acme-prod") {
		t.Fatalf("pseudonyms %q and %q", p, pseudonym("acme-prod"))
	}
	for text, want := range map[string]string{
		"acme/train.v2 (uid)":             "{acme}/{train.v2} (uid)",
		"acme-prod/x":                     "{acme-prod}/x",
		"acme-prod-7":                     "{acme-prod}-7",
		"acme_x, x_acme":                  "{acme}_x, x_{acme}",
		"the claim of acme.":              "the claim of {acme}.",
		`{"namespace":"acme"}`:            `{"namespace":"{acme}"}`,
		`{"note":"first\nacme\tacme"}`:    `{"note":"first\n{acme}\t{acme}"}`,
		`{"note":"\u003cacme\u003e"}`:     `{"note":"\u003c{acme}\u003e"}`,
		"/namespaces%2Facme%2Fpods":       "/namespaces%2F{acme}%2Fpods",
		"var/log/pods/acme_train.v2_uid/": "var/log/pods/{acme}_{train.v2}_uid/",
		"--tenant\x00acme\x00":            "--tenant\x00{acme}\x00",
		"acmee, xacme, default, train.v3": "acmee, xacme, default, train.v3",
		"acme":                            "{acme}",
	} {
		for _, name := range []string{"acme-prod", "train.v2", "acme"} {
			want = strings.ReplaceAll(want, "{"+name+"}", pseudonym(name))
		}
		if got := pseudonym(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
	if other := output.NewMask(); func() bool { other.Hide("acme"); return string(other.Apply([]byte("acme"))) == pseudonym("acme") }() {
		t.Error("two bundles have the same pseudonym: it can be found by trying names")
	}
}

func FuzzMaskLeavesNoName(f *testing.F) {
	f.Add([]byte("x acme y"), "acme")
	f.Add([]byte(`\nacme`), "acme")
	f.Fuzz(func(t *testing.T, data []byte, name string) {
		if !regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,30}[a-z0-9])?$`).MatchString(name) {
			return
		}
		m := output.NewMask()
		m.Hide(name)
		if string(m.Apply([]byte(name))) == name { // common to all clusters, or a number
			return
		}
		word := regexp.MustCompile(`(^|[^A-Za-z0-9])` + regexp.QuoteMeta(name) + `($|[^A-Za-z0-9])`)
		if got := m.Apply(data); word.Match(regexp.MustCompile(`name-[0-9a-f]{12}`).ReplaceAll(got, []byte("_"))) {
			t.Errorf("%q is in %q, which was %q", name, got, data)
		}
	})
}

// TestReservedNamesAreReplacedInFieldsOnly, and longer names that begin with one everywhere.
func TestReservedNamesAreReplacedInFieldsOnly(t *testing.T) {
	m := output.NewMask()
	m.Hide("dev", "dev-team", "kata-vfio", "acme", "77")
	m.Reserve([]byte("dev/vfio/12 kata-vfio.dev"))
	pseudonym := string(m.Apply([]byte("acme")))
	team := string(m.Apply([]byte("dev-team")))
	if got, want := string(m.Apply([]byte("/dev/vfio/12 of dev-team, kata-vfio.dev, acme: 77"))), "/dev/vfio/12 of "+team+", kata-vfio.dev, "+pseudonym+": 77"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if m.Reserved() != 3 || pseudonym == "acme" || team == "dev-team" {
		t.Errorf("%d are reserved, %s, %s", m.Reserved(), pseudonym, team)
	}
	const doc = `{"claim":{"namespace":"dev","name":"77","uid":"dev"},"devices":[{"name":"dev","pool":"dev"}],"pods":[{"name":"dev"}],"tenants":["x","dev"],"object":"claim dev/x","text":"dev"}`
	want := regexp.MustCompile(`^\{"claim":\{"namespace":"name-\w+","name":"name-\w+","uid":"dev"\},"devices":\[\{"name":"dev","pool":"dev"\}\],` +
		`"pods":\[\{"name":"name-\w+"\}\],"tenants":\["x","name-\w+"\],"object":"claim name-\w+/x","text":"dev"\}` + "\nno JSON: dev\n$")
	if got := m.Fields([]byte(doc + "\nno JSON: dev\n")); !want.Match(got) {
		t.Errorf("the fields are %s", got)
	}
}
