package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
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

func TestWithdrawnIsWhatSomebodyElseHasMadeOfTheFile(t *testing.T) {
	const after = "linux /a\noptions ro quiet intel_iommu=on iommu=nopt\n"
	for _, c := range []struct{ before, after, found, want string }{
		{"linux /a\noptions ro quiet\n", after, "linux /a\noptions ro intel_iommu=on iommu=nopt foo\n", "linux /a\noptions ro foo\n"},
		{"linux /a\noptions ro quiet iommu=nopt\n", after, "linux /a\noptions ro\tiommu=nopt  x intel_iommu=on \n", "linux /a\noptions ro\tiommu=nopt  x \n"},
		{"linux /a\n", "linux /a\noptions iommu=nopt\n", "linux /b\noptions iommu=nopt\n", "linux /b\n"},
		{"linux /a\n", "linux /a\noptions iommu=nopt\n", "linux /a\noptions iommu=nopt x", "linux /a\noptions x"},
		{"a\n", "a\n" + begin + "x\n" + end, "b\n" + begin + "y\n" + end + "c\n", "b\nc\n"},
		{"a\n", "a\n" + begin + "x\n" + end, "b\n" + begin, "b\n" + begin},
		{"a\n", "a\n" + begin + "x\n" + end, "b\n" + begin + "x\n" + strings.TrimSpace(end), "b\n"},
		{"a\n", "a\n" + begin + "x\n" + end, "b\n" + begin + "x\n" + end + "c", "b\nc"},
	} {
		if got := Withdraw(c.before, c.after, c.found); got != c.want {
			t.Errorf("%q of %q: %q, want %q", c.found, c.before, got, c.want)
		}
	}
}

func TestChangedFileIsWrittenAnewWhereItsOrderCounts(t *testing.T) {
	block := begin + "x\n" + end
	for _, c := range []struct {
		found, want string
		says        bool
	}{
		{"options ro a foo\n", "options ro foo a\n", true},
		{"options ro -- a\n", "options ro a --\n", false},
		{"options ro\n", "options ro a\n", false},
		{"options hugepages=1 hugepagesz=1G\n", "options hugepagesz=1G hugepages=1\n", false},
		{"a\n" + block + "b\n", "a\nb\n" + block, true},
		{"a\n" + block + "GRUB_CMDLINE_LINUX=\"\"\n", "a\nGRUB_CMDLINE_LINUX=\"\"\n" + block, false},
		{"a\n" + begin + "y\n" + end, "a\n" + block, false},
	} {
		if got := Says(c.found, c.want); got != c.says {
			t.Errorf("%q for %q: %t", c.found, c.want, got)
		}
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
			if !strings.Contains(content, strings.TrimSpace(begin)) {
				if diff := cmp.Diff(strings.Fields(content), strings.Fields(Withdraw(content, once, once))); diff != "" {
					t.Errorf("%s of %q, withdrawn (-want +got):\n%s", name, content, diff)
				}
			}
			if name != "block" || !strings.Contains(content, strings.TrimSpace(begin)) {
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
