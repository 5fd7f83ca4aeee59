package docs

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// Command is a command line that a document tells people to run.
type Command struct {
	// Path is the document's, from Root.
	Path string
	// Args are the arguments. Words in capitals (UID, ADDRESS) stand for something.
	Args []string
}

// Commands are the command lines with which the documents run a program, in their order: in inline code, and in fenced blocks
// of sh; in YAML, the values of all fields "command". The test fails if there is none.
func Commands(tb testing.TB, program string, paths ...string) []Command {
	tb.Helper()
	var all []Command
	for _, path := range paths {
		for _, code := range codeIn(tb, path) {
			if args := arguments(code, program); len(args) > 0 {
				all = append(all, Command{path, args})
			}
		}
	}
	if len(all) == 0 {
		tb.Fatalf("%q run %s nowhere", paths, program)
	}
	return all
}

func codeIn(tb testing.TB, path string) []string {
	tb.Helper()
	text := Read(tb, path)
	if filepath.Ext(path) != ".yaml" {
		return codeOf(text)
	}
	var document any
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		tb.Fatalf("%s: %v", path, err)
	}
	return commandFields(document)
}

// commandFields are the values of all fields "command" in a document.
func commandFields(value any) (found []string) {
	switch value := value.(type) {
	case []any:
		for _, one := range value {
			found = append(found, commandFields(one)...)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if text, ok := value[name].(string); ok && name == "command" {
				found = append(found, text)
			}
			found = append(found, commandFields(value[name])...)
		}
	}
	return found
}

// codeOf are the lines of blocks of sh, each with those that continue it, and the spans of inline code.
func codeOf(text string) []string {
	var all []string
	for _, m := range regexp.MustCompile("(?ms)^ *```(?:sh|bash|console)\n(.*?)^ *```$").FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(strings.ReplaceAll(m[1], "\\\n", " ")) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(WithoutCode(text), -1) {
		all = append(all, m[1])
	}
	return all
}

// arguments are those that a line of shell gives a program, up to a comment, an operator or a redirection.
func arguments(code, program string) []string {
	m := regexp.MustCompile(`(?:^|.*[ (]|.*bin/)` + regexp.QuoteMeta(program) + ` (.*)$`).FindStringSubmatch(code)
	if m == nil {
		return nil
	}
	var args []string
	for _, arg := range regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`).FindAllString(m[1], -1) {
		if strings.ContainsAny(arg[:1], "#|>&;<)") || arg == "2>" {
			break
		}
		last := strings.HasSuffix(arg, ";")
		args = append(args, strings.Trim(strings.TrimSuffix(arg, ";"), `'"`))
		if last {
			break
		}
	}
	return args
}

// Evidence is the path of the example of a platform's evidence, whose commands are to be repeated.
const Evidence = "deploy/conformance/evidence.yaml"

// CheckCommands reports each command line of the documents that the program would not understand. The program is made for each,
// since parsing leaves values in its flags.
func CheckCommands(tb testing.TB, program string, newCommand func() *cobra.Command, paths ...string) {
	tb.Helper()
	for _, command := range Commands(tb, program, paths...) {
		if err := understand(newCommand(), command.Args); err != nil {
			tb.Errorf("%s: %s %s: %v", command.Path, program, strings.Join(command.Args, " "), err)
		}
	}
}

func understand(program *cobra.Command, args []string) error {
	program.InitDefaultHelpFlag()
	program.InitDefaultVersionFlag()
	program.InitDefaultCompletionCmd(args...)
	program.InitDefaultHelpCmd()
	cmd, rest, err := program.Find(args)
	if err == nil && len(rest) > 0 && cmd.HasSubCommands() && !strings.HasPrefix(rest[0], "-") {
		err = fmt.Errorf("%s has no such command", cmd.CommandPath())
	}
	if err == nil {
		cmd.InitDefaultHelpFlag()
		err = cmd.ParseFlags(rest)
	}
	return err
}
