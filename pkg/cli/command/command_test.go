package command_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// programVariable makes this test's program one that [command.Main] runs, and
// says how it ends.
const programVariable = "KATA_VFIO_TEST_PROGRAM"

func TestMain(m *testing.M) {
	how := os.Getenv(programVariable)
	if how == "" {
		os.Exit(m.Run())
	}
	command.Main(func(ctx context.Context, args []string, stdout, _ io.Writer) error {
		fmt.Fprintln(stdout, args)
		switch how {
		case "fails":
			return errors.New("it fails: \x1b[2J")
		case "waits":
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				return err
			}
			<-ctx.Done()
			return fmt.Errorf("told to end: %w", ctx.Err())
		}
		return nil
	}, command.Fail("program", func(error) int { return 7 }))
}

func TestMainEndsWithTheExitCodeOfItsError(t *testing.T) {
	for how, want := range map[string]struct {
		code   int
		stderr string
	}{
		"ends":  {0, ""},
		"fails": {7, "program: it fails: \\x1b[2J\n"},
		"waits": {7, "program: told to end: context canceled\n"},
	} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "an", "argument")
			cmd.Env = append(os.Environ(), programVariable+"="+how)
			var stdout, stderr strings.Builder
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			_ = cmd.Run() // its exit code is looked at
			if stdout.String() != "[an argument]\n" {
				t.Errorf("it got the arguments %s", &stdout)
			}
			if got := cmd.ProcessState.ExitCode(); got != want.code || stderr.String() != want.stderr {
				t.Errorf("exit code %d, %q; want %d, %q", got, stderr.String(), want.code, want.stderr)
			}
		})
	}
}

// program has one command, which fails.
func program(stdout, stderr io.Writer) *cobra.Command {
	var format string
	formats := command.Formats{"table", "json"}
	root := &cobra.Command{Use: "program", Args: command.NoSubcommand, RunE: func(*cobra.Command, []string) error { return nil }}
	command.Setup(root, stdout, stderr)
	work := &cobra.Command{
		Use: "work", Args: command.NoArgs,
		PreRunE: func(*cobra.Command, []string) error { return formats.Check(format) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.Join(cmd.Context().Err(), errors.New("it can't, as "+format))
		},
	}
	formats.Flag(work, &format)
	root.AddCommand(work)
	command.AddVersion(root, "program "+command.Build())
	return root
}

// execute runs a command line of it.
func execute(ctx context.Context, args ...string) (stdout, stderr string, err error) {
	var out, warnings strings.Builder
	err = command.Tree(program)(ctx, args, &out, &warnings)
	return out.String(), warnings.String(), err
}

func TestCommandsHaveTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := execute(ctx, "work"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestWrongCommandLines: each is a usage error in one line, which nobody but
// the caller prints.
func TestWrongCommandLines(t *testing.T) {
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"frob":            {command.Usage, "unknown command \"frob\"; see `program --help`"},
		"--frob":          {command.Usage, "unknown flag: --frob; see `program --help`"},
		"work --frob":     {command.Usage, "unknown flag: --frob; see `program work --help`"},
		"wrk":             {command.Usage, "unknown command \"wrk\" (did you mean work?); see `program --help`"},
		"wrk -o json":     {command.Usage, "unknown command \"wrk\" (did you mean work?); see `program --help`"},
		"work --outptu x": {command.Usage, "unknown flag: --outptu (did you mean --output?); see `program work --help`"},
		"work a b":        {command.Usage, "unexpected argument \"a b\": program work takes none; see `program work --help`"},
		"version x":       {command.Usage, "unexpected argument \"x\": program version takes none; see `program version --help`"},
		"work -o xml":     {command.Usage, `--output "xml": want one of table, json`},
		"work":            {command.Failed, "it can't, as table"},
		"work -ojson":     {command.Failed, "it can't, as json"},
	} {
		stdout, stderr, err := execute(t.Context(), strings.Fields(line)...)
		if err == nil || err.Error() != want.text || command.ExitCode(err) != want.code || stdout+stderr != "" {
			t.Errorf("%s: %v, exit code %d, said %q; want %q, %d", line, err, command.ExitCode(err), stdout+stderr, want.text, want.code)
		}
	}
}

func TestExitCodeSeesThroughWrapping(t *testing.T) {
	wrapped := errors.Join(errors.New("other"), fmt.Errorf("read: %w", command.Usagef("claim %s: %w", "c", os.ErrNotExist)))
	if got := command.ExitCode(wrapped); got != command.Usage {
		t.Errorf("exit code %d", got)
	}
	if !errors.Is(wrapped, os.ErrNotExist) {
		t.Errorf("%v hides what is wrong", wrapped)
	}
}

func TestFormatsAreCompleted(t *testing.T) {
	stdout, _, err := execute(t.Context(), cobra.ShellCompRequestCmd, "work", "--output", "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("table\njson\n:4\n", stdout); diff != "" {
		t.Errorf("completion (-want +got):\n%s", diff)
	}
}

func TestVersionNamesTheBuild(t *testing.T) {
	for _, line := range []string{"version", "--version"} {
		stdout, _, err := execute(t.Context(), line)
		if err != nil || stdout != "program "+command.Build()+"\n" || !strings.Contains(stdout, "(go1.") {
			t.Errorf("%s: %v, %q", line, err, stdout)
		}
	}
}

// TestReadArgument: a file, or standard input, up to the limit; all else is the user's error.
func TestReadArgument(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{file: "12345", "-": "stdin"} {
		if data, err := command.ReadArgument(strings.NewReader("stdin"), name, 5); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	for _, name := range []string{file, "-", file + ".none", t.TempDir()} {
		if data, err := command.ReadArgument(strings.NewReader("stdin"), name, 4); command.ExitCode(err) != command.Usage {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

// TestNumberOfArguments is said where it is wrong.
func TestNumberOfArguments(t *testing.T) {
	cmd := &cobra.Command{Use: "prog"}
	for n, want := range map[int][2]bool{0: {false, true}, 1: {false, true}, 2: {true, true}, 3: {false, false}} {
		args := make([]string, n)
		exact, most := command.ExactArgs(2, "two files")(cmd, args), command.MaxArgs(2, "two files")(cmd, args)
		if exact == nil != want[0] || most == nil != want[1] {
			t.Errorf("of %d: exactly two: %v; at most two: %v", n, exact, most)
		}
	}
	if err := command.MaxArgs(0, "one node")(cmd, []string{"a"}); command.ExitCode(err) != command.Usage || !strings.Contains(err.Error(), "prog wants at most one node") {
		t.Error(err)
	}
}
