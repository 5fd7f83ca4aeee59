package host

import (
	"strings"
	"testing"
)

// block is an environment block of GRUB's size.
func block(lines string) string {
	text := "# GRUB Environment Block\n" + lines
	return text + strings.Repeat("#", 1024-len(text))
}

func TestEnvironmentKeepsItsSizeAndOtherVariables(t *testing.T) {
	words := []string{"intel_iommu=on", "iommu=nopt"}
	const more = "intel_iommu=on iommu=nopt"
	full := block("kernelopts=ro " + strings.Repeat("x", 960) + "\n")
	for name, c := range map[string]struct{ before, after, fails string }{
		"at the end":                    {before: block("saved_entry=a\nkernelopts=root=/dev/sda1 ro\nboot_success=1\n"), after: block("saved_entry=a\nkernelopts=root=/dev/sda1 ro " + more + "\nboot_success=1\n")},
		"before a space at the end":     {before: block("kernelopts=ro quiet \n"), after: block("kernelopts=ro quiet " + more + " \n")},
		"one is there":                  {before: block("kernelopts=iommu=nopt ro\n"), after: block("kernelopts=iommu=nopt ro intel_iommu=on\n")},
		"all are there":                 {before: block("kernelopts=" + more + "\n"), after: block("kernelopts=" + more + "\n")},
		"an empty value":                {before: block("kernelopts=\n"), after: block("kernelopts=" + more + "\n")},
		"no room":                       {before: full, fails: "no room"},
		"another variable":              {before: block("saved_kernelopts=ro\n"), fails: "does not set kernelopts"},
		"a value over two lines":        {before: block("kernelopts=ro \\\nquiet\n"), fails: "continues"},
		"an open quote":                 {before: block("kernelopts=ro a=\"b\n"), fails: "quote"},
		"a line that does not end":      {before: "# GRUB Environment Block\nkernelopts=ro", fails: "not closed"},
		"a cut block, after kernelopts": {before: "# GRUB Environment Block\nkernelopts=ro\nsaved_entry=", fails: "not closed"},
	} {
		got, err := addToEnvironment(kernelOptions, words)(c.before)
		if c.fails != "" {
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s: error %v, want %q", name, err, c.fails)
			}
			continue
		}
		if err != nil || got != c.after {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, strings.TrimRight(got, "#"), strings.TrimRight(c.after, "#"))
		}
		if back := Withdraw(c.before, got, got); back != c.before {
			t.Errorf("%s: withdrawn\n%s", name, back)
		}
	}
}

func TestEnvironmentOfOthersIsKeptWhenWordsAreWithdrawn(t *testing.T) {
	before, after := block("saved_entry=a\nkernelopts=ro\n"), block("saved_entry=a\nkernelopts=ro intel_iommu=on\n")
	found := block("saved_entry=b\nkernelopts=ro intel_iommu=on audit=1\nboot_success=1\n")
	if got := Withdraw(before, after, found); got != block("saved_entry=b\nkernelopts=ro audit=1\nboot_success=1\n") {
		t.Errorf("withdrawn\n%s", got)
	}
	if !Holds(found, after) || Holds(before, after) || Holds("kernelopts=ro intel_iommu=on\n", after) {
		t.Error("Holds is wrong")
	}
	if Says(found, after) || !Says(block("kernelopts=intel_iommu=on ro\n"), after) {
		t.Error("Says is wrong")
	}
}
