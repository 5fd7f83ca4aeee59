package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// blind are the packages that know settings, and no provider.
func blind() []string {
	return []string{"prepare", "prepare/effects", "publish", "journal", "ledger", "maintain"}
}

// providerNames returns the words that name a provider or a vendor: those of the constants of plan's providers and their settings, of the
// types that bind has for them, and of the vendors of package pci. Settings of one word that say nothing, such as "partition", are left
// out.
func providerNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{"gim": true} // AMD's driver: its provider makes no setting, so that no constant names it
	for _, c := range constants(t, "plan/provided.go") {
		switch value := c.value; {
		case strings.HasPrefix(c.name, "Provider"):
			for part := range strings.SplitSeq(value, "-") {
				names[part] = true
			}
		case strings.Contains(value, "_"):
			names[value] = true
		}
	}
	for _, c := range constants(t, "pci/id.go") {
		if vendor, ok := strings.CutPrefix(c.name, "Vendor"); ok {
			names[strings.ToLower(vendor)] = true
		}
	}
	for _, file := range files(t, "bind") {
		for _, d := range parse(t, file).Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "Accepts" && f.Recv != nil {
				names[strings.ToLower(receiver(f))] = true
			}
		}
	}
	for _, want := range []string{"xe", "nvidia", "vgpu", "fabric", "amd", "intel", "current_vgpu_type", "exec_quantum_ms"} {
		if !names[want] {
			t.Errorf("%s is not among the names of providers %v: where are they declared now?", want, slices.Sorted(maps.Keys(names)))
		}
	}
	return names
}

// allowed are the names that the packages have nevertheless, each with the reason.
func allowed() map[string]string {
	const (
		topology  = "which GPUs links join, and which partitions that makes, is the node's topology: the scheduler counts it, and nothing here asks who makes the links"
		published = "is a name in published ResourceSlices, which users' selectors have"
	)
	return map[string]string{
		"Fabric": topology, "fabric": topology, "fabricSize": topology,
		"fabric-": published, "fabricLinks": published, "fabricVersion": published,
		"AttrFabricSize": published, "AttrFabricLinks": published, "AttrFabricVersion": published,
	}
}

// TestProvidersAreBehindOneSeam keeps what one vendor's devices need out of the order of effects, the records and the slices: a further
// provider changes package plan, which decides, and package bind, which writes. Comments don't count.
func TestProvidersAreBehindOneSeam(t *testing.T) {
	names, except, used := providerNames(t), allowed(), map[string]bool{}
	for _, dir := range blind() {
		for _, file := range files(t, dir) {
			for _, text := range identifiersAndStrings(t, file) {
				name := named(names, text)
				if name == "" {
					continue
				}
				if except[text] == "" || dir != "publish" {
					t.Errorf("%s: %q names %s; settings are the same for all providers there", file, text, name)
				}
				used[text] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(except)) {
		if !used[name] {
			t.Errorf("%s is in no package; drop it from allowed", name)
		}
	}
}

// TestNamesOfProvidersAreFound in what a further provider would write.
func TestNamesOfProvidersAreFound(t *testing.T) {
	names := providerNames(t)
	for text, want := range map[string]string{
		"ProviderXe": "xe", "isXeSlice": "xe", "VGPUType": "vgpu", "nvidia/current_vgpu_type": "current_vgpu_type", "VendorNVIDIA": "nvidia",
		"AMDSlices": "amd", "has driver gim": "gim", "Fabric": "fabric", "PartitionNotActivated": "", "execute": "", "indexes": "", "damaged": "",
	} {
		if got := named(names, text); got != want {
			t.Errorf("%q names %q, want %q", text, got, want)
		}
	}
}

// TestPhasesAreOfNoProvider compares the phases that the executor knows, and the operations of their steps, with a list. What a provider
// does is a setting, in ApplySettings, Activate and Deactivate: a further one needs no phase of its own.
func TestPhasesAreOfNoProvider(t *testing.T) {
	for _, c := range []struct {
		file, kind string
		want       []string
	}{
		{"plan/phase.go", "Phase", []string{
			"LoadModules", "Bind", "ResetBefore", "ConfigureVFs", "ApplySettings", "Activate", "Deactivate", "Measure", "TakeAddresses", "BindEndpoints",
			"WriteSpec", "RemoveSpec", "RebindEndpoints", "UnbindEndpoints", "ResetAfter", "ResetForHost", "Restore", "ReturnAddresses",
		}},
		{"prepare/effects/parts.go", "Phase", []string{
			"PhaseWait", "PhaseUnbind", "PhaseBind", "PhaseReset", "PhaseNode", "PhaseJournal", "PhaseCDI", "PhaseScan", "PhaseVF", "PhaseSetting",
			"PhaseAddress", "PhaseLedger",
		}},
		{"plan/step.go", "Op", []string{"Load", "Unbind", "Override", "Probe", "Reset", "ConfigureVF", "SetValue", "TakeAddress", "ReturnAddress"}},
	} {
		var got []string
		for _, constant := range constants(t, c.file) {
			if constant.kind == c.kind {
				got = append(got, constant.name)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("pkg/%s: got the constants %v of type %s, want %v: a provider's work is a plan.Setting", c.file, got, c.kind, c.want)
		}
	}
}

// named returns the name of a provider that an identifier or a text has, in the words of an identifier or as a part of it if it is long;
// empty without one.
func named(names map[string]bool, text string) string {
	parts := split(text)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if slices.Contains(parts, name) || len(name) > 3 && strings.Contains(strings.ToLower(text), name) {
			return name
		}
	}
	return ""
}

// split returns the words of identifiers and texts in lower case: "is", "vgpu", "type" of "isVGPUType".
func split(text string) []string {
	var all []string
	letters := []rune(text)
	begin := 0
	for i := range letters {
		upper, after := unicode.IsUpper(letters[i]), i > 0 && unicode.IsLower(letters[i-1])
		last := i+1 < len(letters) && unicode.IsLower(letters[i+1]) && i > 0 && unicode.IsUpper(letters[i-1])
		if !unicode.IsLetter(letters[i]) || upper && (after || last) {
			all, begin = append(all, string(letters[begin:i])), i
		}
	}
	all = append(all, string(letters[begin:]))
	for i, word := range all {
		all[i] = strings.ToLower(strings.TrimFunc(word, func(r rune) bool { return !unicode.IsLetter(r) }))
	}
	return all
}

// constant is a constant with a string, or without a value of its own.
type constant struct{ name, kind, value string }

// constants returns the constants of a file below pkg, in order.
func constants(t *testing.T, name string) []constant {
	t.Helper()
	var all []constant
	for _, d := range parse(t, filepath.Join("../../pkg", name)).Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			s := spec.(*ast.ValueSpec)
			c := constant{name: s.Names[0].Name}
			if kind, ok := s.Type.(*ast.Ident); ok {
				c.kind = kind.Name
			}
			if len(s.Values) == 1 {
				if lit, ok := s.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
					c.value, _ = strconv.Unquote(lit.Value)
				}
			}
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		t.Errorf("pkg/%s declares no constant", name)
	}
	return all
}

// identifiersAndStrings returns the identifiers and the strings of a file, without those of imports and tags.
func identifiersAndStrings(t *testing.T, file string) []string {
	t.Helper()
	var all []string
	ast.Inspect(parse(t, file), func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Ident:
			all = append(all, n.Name)
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}

// files returns the Go files of a package below pkg, without its tests.
func files(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob("../../pkg/" + dir + "/*.go")
	all = slices.DeleteFunc(all, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	if err != nil || len(all) == 0 {
		t.Fatalf("pkg/%s has %d files, %v", dir, len(all), err)
	}
	return all
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
