package main

import (
	"bytes"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
	"github.com/spdx/tools-golang/spdxlib"
)

// readSBOM reads a release's by the library of those who made the format, which refuses what it does not know.
func readSBOM(t *testing.T) ([]byte, *v2_3.Document) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(released(t), "kata-vfio-1.2.3.spdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var doc v2_3.Document
	if err := spdxjson.ReadInto(bytes.NewReader(content), &doc); err != nil {
		t.Fatal(err)
	}
	return content, &doc
}

func TestSBOMNamesWhatTheProgramsAreMadeOf(t *testing.T) {
	_, doc := readSBOM(t)
	if err := spdxlib.ValidateDocument(doc); err != nil {
		t.Error(err)
	}
	byID := map[string]*v2_3.Package{}
	for _, p := range doc.Packages {
		byID[string(p.PackageSPDXIdentifier)] = p
	}
	got := map[string][]string{}
	for _, r := range doc.Relationships {
		from, to := byID[string(r.RefA.ElementRefID)], byID[string(r.RefB.ElementRefID)]
		if r.Relationship == "DEPENDS_ON" {
			got[from.PackageFileName] = append(got[from.PackageFileName], to.PackageName+" "+to.PackageVersion+" "+to.PackageLicenseDeclared)
		}
	}
	want := map[string][]string{}
	for _, p := range programs(t) {
		for _, m := range modules(p.build) {
			license := map[string]string{"std": "BSD-3-Clause", "github.com/spf13/cobra": "Apache-2.0", "github.com/spf13/pflag": "BSD-3-Clause"}[m.Path]
			want[p.platform()+"/show"] = append(want[p.platform()+"/show"], m.Path+" "+m.Version+" "+license)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || len(want["linux-arm64/show"]) != 3 {
		t.Errorf("the modules differ (-want +got):\n%s", diff)
	}
}

// TestSBOMKeepsTheRulesOfItsFormat: those of SPDX 2.3 that the library does not try. The numbers are its clauses.
func TestSBOMKeepsTheRulesOfItsFormat(t *testing.T) {
	content, doc := readSBOM(t)
	if doc.SPDXVersion != "SPDX-2.3" || doc.DataLicense != "CC0-1.0" || doc.SPDXIdentifier != "DOCUMENT" {
		t.Errorf("6.1 to 6.3: %s, %s, %s", doc.SPDXVersion, doc.DataLicense, doc.SPDXIdentifier)
	}
	if u, err := url.Parse(doc.DocumentNamespace); err != nil || !u.IsAbs() || strings.Contains(doc.DocumentNamespace, "#") {
		t.Errorf("6.5: %s, %v", doc.DocumentNamespace, err)
	}
	if _, err := time.Parse("2006-01-02T15:04:05Z", doc.CreationInfo.Created); err != nil {
		t.Errorf("6.9: %v", err)
	}
	id := regexp.MustCompile(`^[a-zA-Z0-9.-]+$`)
	expression := regexp.MustCompile(`^(NOASSERTION|[A-Za-z0-9.+-]+( AND [A-Za-z0-9.+-]+)*)$`)
	locator := regexp.MustCompile(`^pkg:golang/[^@ ]+@[^@ +]+$`)
	var ids []string
	for _, p := range doc.Packages {
		ids = append(ids, string(p.PackageSPDXIdentifier))
		switch {
		case p.PackageName == "" || p.PackageDownloadLocation == "":
			t.Errorf("7.1, 7.7: %+v", p)
		case !id.MatchString(string(p.PackageSPDXIdentifier)):
			t.Errorf("7.2: %s", p.PackageSPDXIdentifier)
		case p.FilesAnalyzed || p.PackageVerificationCode != nil:
			t.Errorf("7.8, 7.9: %+v", p)
		case !expression.MatchString(p.PackageLicenseConcluded) || !expression.MatchString(p.PackageLicenseDeclared):
			t.Errorf("7.13, 7.15: %s, %s", p.PackageLicenseConcluded, p.PackageLicenseDeclared)
		case len(p.PackageExternalReferences) != 1 || !locator.MatchString(p.PackageExternalReferences[0].Locator):
			t.Errorf("7.21: %+v", p.PackageExternalReferences)
		case !slices.Contains([]string{"APPLICATION", "LIBRARY"}, p.PrimaryPackagePurpose):
			t.Errorf("7.24: %s", p.PrimaryPackagePurpose)
		}
	}
	if slices.Sort(ids); len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Errorf("identifiers twice: %v", ids)
	}
	// Nothing of it is lost on the library: it knows every field.
	strict := json.NewDecoder(bytes.NewReader(content))
	strict.DisallowUnknownFields()
	if err := strict.Decode(new(spdxDocument)); err != nil {
		t.Error(err)
	}
}

func TestLicenseThatIsNotKnownIsNotAsserted(t *testing.T) {
	l, err := newLawyer()
	if err != nil {
		t.Fatal(err)
	}
	apache, err := os.ReadFile(filepath.Join(tree, "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	for want, texts := range map[string][]file{
		"Apache-2.0":  {{path: "LICENSE", content: apache}},
		"NOASSERTION": {{path: "LICENSE", content: []byte("Do what is right, and tell nobody.")}},
	} {
		if got := l.expression(texts); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if got := l.expression(nil); got != noAssertion {
		t.Errorf("of nothing: %s", got)
	}
}
