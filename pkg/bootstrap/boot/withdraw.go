package boot

import (
	"slices"
	"strings"
)

// Withdraw returns a file that bootstrap has edited, from before to after, and somebody has edited since, without what bootstrap put in:
// its block where there is one, otherwise the words that were new.
func Withdraw(before, after, found string) string {
	if ahead, _, behind, ok := splitBlock(found); ok {
		return ahead + behind
	}
	if strings.Contains(found, strings.TrimSpace(begin)) {
		return found // with damaged marks; its edit is refused
	}
	had, ours := map[string]bool{}, map[string]bool{}
	for word := range strings.FieldsSeq(before) {
		had[word] = true
	}
	for word := range strings.FieldsSeq(after) {
		ours[word] = !had[word]
	}
	var kept strings.Builder
	for line := range strings.Lines(found) {
		if line = withoutWords(line, ours); strings.TrimSpace(line) != "options" || hasDirective(before, "options") { // else the whole line was ours
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// withoutWords returns a line without words that stand alone in it, and the space before each. "options" is a keyword.
func withoutWords(line string, ours map[string]bool) string {
	var kept strings.Builder
	for rest := line; rest != ""; {
		word := strings.TrimLeft(rest, " \t\r\n")
		space := rest[:len(rest)-len(word)]
		end := strings.IndexAny(word, " \t\r\n")
		if end < 0 {
			end = len(word)
		}
		rest, word = word[end:], word[:end]
		if word == "" || word == "options" || !ours[word] {
			kept.WriteString(space + word)
		}
	}
	return kept.String()
}

// Marked reports whether a file has our block, which is passed over where a file is judged and is replaced where it is edited.
func Marked(content string) bool {
	_, _, _, ok := splitBlock(content)
	return ok
}

// Says reports whether a file that somebody has edited says what is wanted, in another order at most: somebody's own word or line behind
// ours is no reason to write the file anew.
func Says(found, want string) bool {
	if ahead, block, behind, ok := splitBlock(found); ok {
		ours, wanted, _, _ := splitBlock(want)
		return ahead+behind == ours && block == wanted && len(assignments(behind, "GRUB_CMDLINE_LINUX", "U_BOOT_PARAMETERS", "set linux_append")) == 0
	}
	return slices.EqualFunc(strings.SplitAfter(found, "\n"), strings.SplitAfter(want, "\n"), func(a, b string) bool {
		fa, fb := strings.Fields(a), strings.Fields(b)
		return a == b || !slices.Contains(fa, "--") && slices.Equal(inOrder(fa), inOrder(fb)) && slices.Equal(sorted(fa), sorted(fb))
	})
}

// inOrder are the words whose order counts: a number of huge pages is of the size before it.
func inOrder(words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, "hugepages") })
}

func sorted(words []string) []string { return slices.Sorted(slices.Values(words)) }

// splitBlock returns what is ahead of our block, the block with its marks, and what is behind it; false where there is none, or its
// marks are damaged. The last line may lack its end.
func splitBlock(content string) (ahead, block, behind string, ok bool) {
	whole := content
	if !strings.HasSuffix(content, "\n") {
		whole += "\n"
	}
	ahead, rest, there := strings.Cut(whole, begin)
	inner, behind, closed := strings.Cut(rest, end)
	if whole != content {
		behind = strings.TrimSuffix(behind, "\n")
	}
	if !there || !closed || strings.Contains(behind, begin) {
		return content, "", "", false
	}
	return ahead, begin + inner + end, behind, true
}

// blank returns a content with empty lines in place of our block, so that lines keep their numbers.
func blank(content string) string {
	ahead, block, behind, _ := splitBlock(content)
	return ahead + strings.Repeat("\n", strings.Count(block, "\n")) + behind
}
