package chart

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// refusal is a validation of one of the chart's policies.
type refusal struct {
	file, expression string
	// messages are its message and its messageExpression, as the template has them.
	messages []string
}

// TestPoliciesRefuseWithCodes: each refusal of a policy ends with a code, as those of Prepare and NRI do, whose text says that the API
// server refuses because of it. Each such text has a policy.
func TestPoliciesRefuseWithCodes(t *testing.T) {
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	enforced := map[string]bool{}
	for _, text := range texts {
		if slices.Contains(text.Enforced, rule.AtAdmission) {
			enforced[string(text.Code)] = false
		}
	}
	for _, r := range refusals(t) {
		if len(r.messages) == 0 {
			t.Errorf("%s: %s\nis refused without a message", r.file, r.expression)
		}
		for _, message := range r.messages {
			code := codeAtEnd(message)
			if _, ok := enforced[code]; !ok {
				t.Errorf("%s: %s\nis refused with %q; want a code at its end, whose text in pkg/rule says enforced: %s", r.file, r.expression, message, rule.AtAdmission)
			}
			enforced[code] = true
		}
	}
	for code, found := range enforced {
		if !found {
			t.Errorf("the text of %s says that the API server refuses, and no policy of the chart does", code)
		}
	}
}

// TestPoliciesCompareKeysWithoutCase: the plugin refuses annotations for CDI and for Kata in capitals, too, and so does each policy.
func TestPoliciesCompareKeysWithoutCase(t *testing.T) {
	compared, exact := regexp.MustCompile(`startsWith\('(cdi\.k8s\.io/|io\.katacontainers\.)'\)`), regexp.MustCompile(`\bkey\.startsWith\('(cdi|io)\.`)
	root, found := os.DirFS("../../deploy/helm/kata-vfio"), 0
	names, err := fs.Glob(root, "templates/admission/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text := content(t, root, name)
		found += len(compared.FindAllString(text, -1))
		for _, one := range exact.FindAllString(text, -1) {
			t.Errorf("%s: %s compares with case; want key.lowerAscii()", name, one)
		}
	}
	if found < 6 {
		t.Errorf("the policies compare keys %d times, want 6 times at least", found)
	}
}

// TestSeenInRequests: a user meets in the API server's answer what it refuses, and nothing else.
func TestSeenInRequests(t *testing.T) {
	texts, err := rule.Texts()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		refuses, seen := slices.Contains(text.Enforced, rule.AtAdmission), slices.Contains(text.SeenIn, rule.InRequest)
		if refuses != seen {
			t.Errorf("%s: the API server refuses: %v; its answer shows the code: %v", text.Code, refuses, seen)
		}
	}
}

// codeAtEnd returns the code in parentheses at the end of a message, which may be a CEL expression.
func codeAtEnd(message string) string {
	found := regexp.MustCompile(`\(([A-Z]\w+)\)['"]?$`).FindStringSubmatch(message)
	if found == nil {
		return ""
	}
	return found[1]
}

// refusals are the validations of all policies of the chart. No helm is needed: what a template includes has no branches.
func refusals(t *testing.T) []refusal {
	t.Helper()
	root := os.DirFS("../../deploy/helm/kata-vfio")
	defined := definitions(t, root)
	var all []refusal
	for _, dir := range []string{"admission", "templates/admission"} {
		names, err := fs.Glob(root, dir+"/*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			all = append(all, parseRefusals(name, include(content(t, root, name), defined))...)
		}
	}
	if len(all) < 60 {
		t.Fatalf("the chart's policies have %d validations, want 60 at least", len(all))
	}
	return all
}

// content is a file of the chart.
func content(t *testing.T, root fs.FS, name string) string {
	t.Helper()
	text, err := fs.ReadFile(root, name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// definitions are the named templates of the policies.
func definitions(t *testing.T, root fs.FS) map[string]string {
	t.Helper()
	names, err := fs.Glob(root, "templates/admission/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defined := map[string]string{}
	for _, name := range append(names, "templates/_cel.tpl") {
		for _, m := range regexp.MustCompile(`(?s)\{\{- define "([^"]+)" -?\}\}\n(.*?)\{\{- end \}\}`).FindAllStringSubmatch(content(t, root, name), -1) {
			defined[m[1]] = m[2]
		}
	}
	return defined
}

// include replaces lines that include a named template by its text, with the same indent.
func include(text string, defined map[string]string) string {
	line := regexp.MustCompile(`(?m)^( +)\{\{- include "([^"]+)" \. \| nindent \d+ \}\}$`)
	return line.ReplaceAllStringFunc(text, func(found string) string {
		m := line.FindStringSubmatch(found)
		return m[1] + strings.ReplaceAll(strings.TrimSpace(defined[m[2]]), "\n", "\n"+m[1])
	})
}

// parseRefusals returns the validations of a file: other lists of expressions begin with a name.
func parseRefusals(file, text string) []refusal {
	var all []refusal
	field := regexp.MustCompile(`^( *)message(?:Expression)?: (.*)$`)
	for _, item := range strings.Split(text, "- expression:")[1:] {
		r := refusal{file: path.Base(file), expression: strings.TrimSpace(item[:min(len(item), 120)])}
		lines := strings.Split(item, "\n")
		for i, line := range lines {
			if m := field.FindStringSubmatch(line); m != nil {
				r.messages = append(r.messages, join(m[2], lines[i+1:], m[1]+" "))
			}
		}
		all = append(all, r)
	}
	return all
}

// join returns the value of a YAML field as one line: what is beside its key, and the lines that follow with a larger indent.
func join(first string, rest []string, indent string) string {
	words := []string{strings.TrimPrefix(first, ">-")}
	for _, line := range rest {
		if !strings.HasPrefix(line, indent) {
			break
		}
		words = append(words, strings.TrimSpace(line))
	}
	return strings.TrimSpace(strings.Join(words, " "))
}
