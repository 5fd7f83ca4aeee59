package boot

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/kernelargs"
)

func words() []string { return []string{"intel_iommu=on", "iommu=nopt"} }

func TestEntriesAreExtendedInPlace(t *testing.T) {
	for _, c := range []struct{ name, content, want string }{
		{"one line", "linux /a\noptions root=/dev/sda1 ro\n", "linux /a\noptions root=/dev/sda1 ro intel_iommu=on iommu=nopt\n"},
		{"variables, a tab and a space at the end", "options\t$kernelopts $tuned_params \n", "options\t$kernelopts $tuned_params intel_iommu=on iommu=nopt \n"},
		{"several lines", "options ro\noptions intel_iommu=on\n", "options ro\noptions intel_iommu=on iommu=nopt\n"},
		{"none", "linux /a\n", "linux /a\noptions intel_iommu=on iommu=nopt\n"},
		{"none, and no line break", "linux /a", "linux /a\noptions intel_iommu=on iommu=nopt\n"},
		{"no line break", "options ro", "options ro intel_iommu=on iommu=nopt"},
		{"all there", "options iommu=nopt intel_iommu=on ro\n", "options iommu=nopt intel_iommu=on ro\n"},
		{"a line of init's", "options ro -- single\n", "options ro intel_iommu=on iommu=nopt -- single\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := addToDirectives("options", words())(c.content)
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

func TestExtlinuxWithoutAppendIsRefused(t *testing.T) {
	if _, err := addToDirectives("append", words())("LABEL l0\n\tlinux /a\n"); err == nil {
		t.Error("no error")
	}
}

// Whatever a file has, a second edit changes nothing, and of what was there nothing
// is lost.
func FuzzEdits(f *testing.F) {
	for _, text := range []string{"", "options ro", "linux /a\noptions x -- y\n", begin, begin + end, "a\n" + begin + "x\n" + end + "b\n", "append\nAPPEND ro\n"} {
		f.Add(text)
	}
	edits := map[string]func(string) (string, error){
		"block":   func(s string) (string, error) { return withBlock(s, appendScript("X", "", words())) },
		"options": addToDirectives("options", words()),
		"append":  addToDirectives("append", words()),
		"line": func(s string) (string, error) {
			if !kernelargs.Closed(s) {
				return "", errOpenQuote
			}
			return kernelargs.Add(s, words()...), nil
		},
	}
	f.Fuzz(func(t *testing.T, content string) {
		for name, edit := range edits {
			once, err := edit(content)
			if err != nil {
				continue
			}
			twice, err := edit(once)
			if err != nil || twice != once {
				t.Errorf("%s of %q: %q, then %q, %v", name, content, once, twice, err)
			}
			if name != "block" || !strings.Contains(content, begin) {
				kept := strings.Fields(content)
				for word := range strings.FieldsSeq(once) {
					if len(kept) > 0 && word == kept[0] {
						kept = kept[1:]
					}
				}
				if len(kept) > 0 {
					t.Errorf("%s of %q lost %q: %q", name, content, kept, once)
				}
			}
		}
	})
}
