package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/dynamic-resource-allocation/cel"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// TestSelectorsAreAccepted by the API server: those of documents, of examples and of the chart's DeviceClasses. It refuses an expression
// that doesn't compile, or whose estimated cost exceeds its limit.
func TestSelectorsAreAccepted(t *testing.T) {
	for source, selectors := range map[string][]selector{
		"documents": documentSelectors(t), "examples": exampleSelectors(t), "chart": classSelectors(t),
	} {
		if len(selectors) < 2 {
			t.Errorf("found %d selectors in the %s: their form has changed", len(selectors), source)
		}
		for _, s := range selectors {
			checkSelector(t, s)
		}
	}
}

// TestSelectorCost checks that the estimate tells a refused selector from the accepted one.
func TestSelectorCost(t *testing.T) {
	const attributes = `device.attributes["kata-vfio.dev"]`
	if cost := compiled(attributes + `.?model.orValue("").contains("H100")`).MaxCost; cost <= resourceapi.CELSelectorExpressionMaxCost {
		t.Errorf("the refused selector costs %d", cost)
	}
	if cost := compiled(`"model" in ` + attributes + ` && ` + attributes + `.model.contains("H100")`).MaxCost; cost > resourceapi.CELSelectorExpressionMaxCost {
		t.Errorf("the accepted selector costs %d", cost)
	}
}

// selector is a CEL expression, and the file that has it.
type selector struct{ path, expression string }

func checkSelector(t *testing.T, s selector) {
	t.Helper()
	switch result := compiled(s.expression); {
	case result.Error != nil:
		t.Errorf("%s: %s: %v", s.path, s.expression, result.Error)
	case result.MaxCost > resourceapi.CELSelectorExpressionMaxCost:
		t.Errorf("%s: %s: too complex, it may cost %d and the limit is %d", s.path, s.expression, result.MaxCost, resourceapi.CELSelectorExpressionMaxCost)
	}
}

// compiled is the expression as the API server compiles one that is new.
func compiled(expression string) cel.CompilationResult {
	kind := environment.NewExpressions
	return cel.GetCompiler(cel.Features{}).CompileCELExpression(expression, cel.Options{EnvType: &kind})
}

var (
	// codeSpan is code in a line; in a table, "|" has a backslash.
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	// shortened is an expression without what all have in common, device.attributes["kata-vfio.dev"].
	shortened = regexp.MustCompile(`^\.\?\w+\.orValue\(.+`)
	// whole is one that has it. A name alone, such as device.attributes["kata-vfio.dev"], is not a selector.
	whole = regexp.MustCompile(`device\.(attributes|capacity|driver).*(==|>=|<=|&&|contains|matches|startsWith|orValue\([^.])`)
)

// documentSelectors are those in the text of documents, and in their blocks of YAML.
func documentSelectors(t *testing.T) []selector {
	t.Helper()
	var found []selector
	for _, path := range docs.All(t) {
		text := docs.Read(t, path)
		for _, m := range codeSpan.FindAllStringSubmatch(text, -1) {
			switch code := strings.ReplaceAll(m[1], `\|`, "|"); {
			case shortened.MatchString(code):
				found = append(found, selector{path, `device.attributes["kata-vfio.dev"]` + code})
			case whole.MatchString(code) && !strings.Contains(code, "..."):
				found = append(found, selector{path, code})
			}
		}
		for _, m := range regexp.MustCompile("(?ms)^ *```ya?ml\n(.*?)^ *```$").FindAllStringSubmatch(text, -1) {
			found = append(found, yamlSelectors(path, m[1])...)
		}
	}
	return found
}

func exampleSelectors(t *testing.T) []selector {
	t.Helper()
	var found []selector
	err := fs.WalkDir(os.DirFS(docs.Root(t)), "deploy/examples", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".yaml" {
			found = append(found, yamlSelectors(path, docs.Read(t, path))...)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// yamlSelectors are the expressions of all "cel" in the documents of a text, as far as they are YAML.
func yamlSelectors(path, text string) []selector {
	var found []selector
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var object any
		if decoder.Decode(&object) != nil {
			return found
		}
		for _, expression := range expressions(object) {
			found = append(found, selector{path, expression})
		}
	}
}

func expressions(value any) (found []string) {
	switch value := value.(type) {
	case []any:
		for _, one := range value {
			found = append(found, expressions(one)...)
		}
	case map[string]any:
		if c, ok := value["cel"].(map[string]any); ok {
			if expression, ok := c["expression"].(string); ok {
				found = append(found, expression)
			}
		}
		for _, one := range value {
			found = append(found, expressions(one)...)
		}
	}
	return found
}

// classSelectors are those of the chart's DeviceClasses: the template's expression for each class of the values. The functions
// are Helm's.
func classSelectors(t *testing.T) []selector {
	t.Helper()
	const path = "deploy/helm/kata-vfio/templates/deviceclasses.yaml"
	expression := regexp.MustCompile(`(?s)expression: >-\n(.*?)\n  \{\{`).FindStringSubmatch(docs.Read(t, path))
	var values struct {
		DeviceClasses map[string]any `yaml:"deviceClasses"`
	}
	if err := yaml.Unmarshal([]byte(docs.Read(t, "deploy/helm/kata-vfio/values.yaml")), &values); err != nil || expression == nil {
		t.Fatalf("%s has no expression, or values.yaml no classes: %v", path, err)
	}
	functions := template.FuncMap{
		"include":    func(string, any) string { return "kata-vfio.dev" },
		"hasPrefix":  func(prefix, s string) bool { return strings.HasPrefix(s, prefix) },
		"hasSuffix":  func(suffix, s string) bool { return strings.HasSuffix(s, suffix) },
		"trimPrefix": func(prefix, s string) string { return strings.TrimPrefix(s, prefix) },
		"ternary": func(yes, no string, is bool) string {
			if is {
				return yes
			}
			return no
		},
	}
	parsed := template.Must(template.New(path).Funcs(functions).Parse("{{ $type := .type }}{{ $class := .class }}" + expression[1]))
	var found []selector
	for class, of := range values.DeviceClasses {
		var filled strings.Builder
		if err := parsed.Execute(&filled, map[string]any{"type": class, "class": of}); err != nil {
			t.Fatal(err)
		}
		found = append(found, selector{path, strings.TrimSpace(filled.String())})
	}
	return found
}
