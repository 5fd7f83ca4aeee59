package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// The marks around bootstrap's block in a file of another owner.
const (
	begin = "# kata-vfio-bootstrap: begin\n"
	end   = "# kata-vfio-bootstrap: end\n"
)

var errOpenQuote = errors.New("a quote in the command line is not closed")

// withBlock returns the content with the block at its end, where it overrides earlier lines. It replaces an existing
// block.
func withBlock(content, block string) (string, error) {
	ahead, _, behind, there := splitBlock(content)
	if !there && strings.Contains(content, strings.TrimSpace(begin)) {
		// Without both marks, the lines of the block are indistinguishable from the user's.
		return "", errors.New("its kata-vfio-bootstrap marks are damaged: remove them and the lines between them")
	}
	content = ahead + behind
	if content != "" && !strings.HasSuffix(content, "\n") {
		content += "\n"
	}
	return content + begin + block + end, nil
}

// appendScript is a shell script that appends missing words to a variable. It may run twice. Each assignment is on a
// separate line and begins with the variable's name, as tools that search for it expect. Words have no characters that
// are special to shells.
func appendScript(variable, standard string, words []string) string {
	var b strings.Builder
	if standard != "" {
		fmt.Fprintf(&b, "if [ -z \"$%s\" ]; then\n\t%s=\"%s\"\nfi\n", variable, variable, standard)
	}
	for _, word := range words {
		// grub-mkconfig sources the file in sh, which may be dash: += and [[ are not available there.
		fmt.Fprintf(&b, "case \" $%s \" in *\" %s \"*) ;; *)\n\t%s=\"$%s %s\"\n\t;;\nesac\n", variable, word, variable, variable, word)
	}
	return b.String()
}

// addToDirectives returns an edit that adds words to lines of the form "options a b". Readers join several such lines,
// so it extends the last one. In a file with several kernels (extlinux) it extends each kernel's line.
func addToDirectives(keyword string, words []string) func(string) (string, error) {
	return func(content string) (string, error) {
		lines := strings.SplitAfter(content, "\n")
		for i, line := range lines {
			if value, ok := directive(line, keyword); ok && !kernelargs.Closed(value) {
				return "", fmt.Errorf("line %d: %w", i+1, errOpenQuote)
			}
		}
		if keyword == "append" {
			for i := range lines {
				if _, ok := directive(lines[i], keyword); ok {
					lines[i] = addToLine(lines[i], words)
				}
			}
			if !hasDirective(content, keyword) {
				return "", fmt.Errorf("it has no line %q", keyword)
			}
			return strings.Join(lines, ""), nil
		}
		return addToLast(lines, keyword, words), nil
	}
}

// addToVariable returns an edit that adds words to the value of a variable of U-Boot's environment, "extraargs=a b".
func addToVariable(name string, words []string) func(string) (string, error) {
	return func(content string) (string, error) {
		lines := strings.SplitAfter(content, "\n")
		// U-Boot imports the file with `env import -t`, which keeps the last value of a variable.
		for i, line := range slices.Backward(lines) {
			value, ok := strings.CutPrefix(line, name+"=")
			if !ok {
				continue
			}
			if !kernelargs.Closed(value) {
				return "", fmt.Errorf("line %d: %w", i+1, errOpenQuote)
			}
			lines[i] = name + "=" + addToLine(value, words)
			return strings.Join(lines, ""), nil
		}
		if content != "" && !strings.HasSuffix(content, "\n") {
			content += "\n"
		}
		return content + name + "=" + strings.Join(words, " ") + "\n", nil
	}
}

func addToLast(lines []string, keyword string, words []string) string {
	last, all := -1, ""
	for i, line := range lines {
		if value, ok := directive(line, keyword); ok {
			last, all = i, all+" "+value
		}
	}
	missing := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return kernelargs.Has(all, w) })
	if len(missing) == 0 {
		return strings.Join(lines, "")
	}
	if last < 0 {
		content := strings.Join(lines, "")
		if content != "" && !strings.HasSuffix(content, "\n") {
			content += "\n"
		}
		return content + keyword + " " + strings.Join(missing, " ") + "\n"
	}
	lines[last] = addToLine(lines[last], missing)
	return strings.Join(lines, "")
}

// addToLine adds words to a line and keeps its line ending. The keyword at its start counts as an argument.
func addToLine(line string, words []string) string {
	body := strings.TrimRight(line, " \t\r\n")
	return kernelargs.Add(body, words...) + line[len(body):]
}

// directive returns the rest of a line that begins with a keyword.
func directive(line, keyword string) (string, bool) {
	fields := strings.Fields(line)
	if len(fields) == 0 || !strings.EqualFold(fields[0], keyword) {
		return "", false
	}
	return strings.Join(fields[1:], " "), true
}

func hasDirective(content, keyword string) bool {
	for line := range strings.Lines(content) {
		if _, ok := directive(line, keyword); ok {
			return true
		}
	}
	return false
}

// Withdraw returns the found version of a file without bootstrap's additions: without its block, or without the words
// that bootstrap added between before and after.
func Withdraw(before, after, found string) string {
	if IsEnvironment(found) {
		return withdrawEnvironment(before, after, found)
	}
	if ahead, _, behind, ok := splitBlock(found); ok {
		return ahead + behind
	}
	if strings.Contains(found, strings.TrimSpace(begin)) {
		return found // the marks are damaged, and edits are refused
	}
	// A word that the file had before bootstrap is the user's, even if the blueprint wants it too.
	had, ours := map[string]bool{}, map[string]bool{}
	for word := range strings.FieldsSeq(before) {
		had[word] = true
	}
	for word := range strings.FieldsSeq(after) {
		ours[word] = !had[word]
	}
	var kept strings.Builder
	for line := range strings.Lines(found) {
		if line = withoutWords(line, ours); strings.TrimSpace(line) != "options" || hasDirective(before, "options") { // otherwise bootstrap added the line
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// withoutWords removes whole words, each with the space before it, from a line. It keeps the keyword "options".
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

// Marked reports whether a file has bootstrap's block. Edits replace the block, and checks of the file ignore it.
func Marked(content string) bool {
	_, _, _, ok := splitBlock(content)
	return ok
}

// Says reports whether a file has the wanted lines, with the words of each line in any order, or bootstrap's block at another
// place. The order of words counts for huge pages and after "--". The user's additions are in both texts, because the wanted
// one is made from the file.
func Says(found, want string) bool {
	if IsEnvironment(want) {
		return environmentSays(found, want)
	}
	if ahead, block, behind, ok := splitBlock(found); ok {
		ours, wanted, _, _ := splitBlock(want)
		// An assignment after the block would replace the variable, and with it the arguments.
		return ahead+behind == ours && block == wanted && !sets(behind, "GRUB_CMDLINE_LINUX", "U_BOOT_PARAMETERS", "linux_append")
	}
	return slices.EqualFunc(strings.SplitAfter(found, "\n"), strings.SplitAfter(want, "\n"), func(a, b string) bool {
		fa, fb := strings.Fields(a), strings.Fields(b)
		// The kernel passes words after "--" to init, so there the order of words matters.
		return a == b || !slices.Contains(fa, "--") && slices.Equal(inOrder(fa), inOrder(fb)) && slices.Equal(sorted(fa), sorted(fb))
	})
}

// sets reports whether a script sets one of the variables.
func sets(script string, variables ...string) bool {
	settings := kernelargs.NewSettings(nil)
	settings.Source("", script)
	return slices.ContainsFunc(variables, settings.Has)
}

// inOrder returns the words whose order matters: a number of huge pages belongs to the size before it.
func inOrder(words []string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, "hugepages") })
}

func sorted(words []string) []string { return slices.Sorted(slices.Values(words)) }

// splitBlock returns the text before bootstrap's block, the block with its marks, and the text after it. It returns false if
// there is no block, or if its marks are damaged. The last line may have no line break.
func splitBlock(content string) (ahead, block, behind string, ok bool) {
	whole := content
	if !strings.HasSuffix(content, "\n") {
		// An editor may have removed the last line break, without which the end mark would not match.
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

// blank replaces bootstrap's block by empty lines, so that line numbers stay the same.
func blank(content string) string {
	ahead, block, behind, _ := splitBlock(content)
	return ahead + strings.Repeat("\n", strings.Count(block, "\n")) + behind
}
