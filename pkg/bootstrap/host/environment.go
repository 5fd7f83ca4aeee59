package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// IsEnvironment reports whether a file is GRUB's environment block. GRUB itself writes to it at each boot.
func IsEnvironment(content string) bool { return strings.HasPrefix(content, grubEnvironment) }

// addToEnvironment returns an edit that adds words to a variable of GRUB's environment.
func addToEnvironment(name string, words []string) func(string) (string, error) {
	return func(content string) (string, error) {
		value, ok := environmentValue(content, name)
		switch {
		case !ok:
			return "", fmt.Errorf("it does not set %s", name)
		case !kernelargs.Closed(value):
			return "", errOpenQuote
		case strings.HasSuffix(value, `\`):
			// GRUB escapes a line break in a value with a backslash (grub-core/lib/envblk.c). An edit of one line would
			// cut the value.
			return "", fmt.Errorf("the value of %s continues on the next line", name)
		}
		return setEnvironment(content, name, addToLine(value, words))
	}
}

// setEnvironment replaces the value of a variable that the block sets. GRUB writes the file's blocks in place and can't
// make it longer, so its size stays: "#" fills it up (grub-core/lib/envblk.c).
func setEnvironment(content, name, value string) (string, error) {
	lines := strings.SplitAfter(strings.TrimRight(content, "#"), "\n")
	at := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, name+"=") })
	if at < 0 || !strings.HasSuffix(lines[at], "\n") || lines[len(lines)-1] != "" {
		return "", errors.New("it is damaged: a line is not closed")
	}
	lines[at] = name + "=" + value + "\n"
	body := strings.Join(lines, "")
	room := len(content) - len(body)
	if room < 0 {
		return "", fmt.Errorf("its %d bytes have no room for %s=%s; shorten a variable with grub2-editenv (new blocks have 1024 bytes)", len(content), name, value)
	}
	return body + strings.Repeat("#", room), nil
}

func environmentValue(content, name string) (string, bool) {
	for line := range strings.Lines(content) {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return strings.TrimSuffix(value, "\n"), true
		}
	}
	return "", false
}

// withdrawEnvironment removes the words that were added to kernelopts between before and after.
func withdrawEnvironment(before, after, found string) string {
	had, _ := environmentValue(before, kernelOptions)
	has, _ := environmentValue(after, kernelOptions)
	value, _ := environmentValue(found, kernelOptions)
	ours := map[string]bool{}
	for word := range strings.FieldsSeq(has) {
		ours[word] = !slices.Contains(strings.Fields(had), word)
	}
	content, err := setEnvironment(found, kernelOptions, withoutWords(value, ours))
	if err != nil {
		// A damaged block is left as it is. One without the variable has nothing to remove, and a shorter value always fits.
		return found
	}
	return content
}

// Holds reports whether an environment block still has all the arguments that bootstrap wrote to it. Other variables may have
// changed.
func Holds(found, written string) bool {
	has, ok := environmentValue(found, kernelOptions)
	wanted, _ := environmentValue(written, kernelOptions)
	return ok && IsEnvironment(found) && !slices.ContainsFunc(strings.Fields(wanted), func(word string) bool { return !slices.Contains(strings.Fields(has), word) })
}

// environmentSays is [Says] for environment blocks.
func environmentSays(found, want string) bool {
	a, _ := environmentValue(found, kernelOptions)
	b, _ := environmentValue(want, kernelOptions)
	fa, fb := strings.Fields(a), strings.Fields(b)
	return slices.Equal(inOrder(fa), inOrder(fb)) && slices.Equal(sorted(fa), sorted(fb))
}

// kernelOptions is the variable from which the entries of RHEL 8 take their arguments, including the entries of kernels that
// are installed later.
const kernelOptions = "kernelopts"
