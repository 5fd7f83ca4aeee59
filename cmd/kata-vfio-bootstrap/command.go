package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// Exit codes, as the help documents them.
const (
	exitFailed = command.Failed
	exitUsage  = command.Usage
	// exitChanges: changes are needed, or were made.
	exitChanges = 3
	// exitReboot: only a reboot brings the rest.
	exitReboot = 4
	// exitImpossible: bootstrap can't remove an obstacle.
	exitImpossible = 5
)

const exitCodes = `Exit codes:
  0  the node is as the blueprint says; nothing to do
  1  something failed; what was changed is taken back, or the message says what is left
  2  the command line or the blueprint is wrong
  3  plan, verify: changes are needed; apply, revert: changes were made, and all of them count already, but for what is
     named as left to do (the tools of an image)
  4  files are right (apply, revert: were made right), and only a reboot brings the rest
  5  it can't be: the problems say what to change, in the firmware setup or in files; nothing was changed. Or the node was
     rebooted, and that has not brought what it should have: another reboot would not either, the problems say where to look.
     revert: files that somebody has changed since are kept, the others were reverted`

const long = `kata-vfio-bootstrap brings a node into the state that a blueprint describes: the IOMMU on the kernel's command line
through the boot loader that the node has, VFIO's modules and their options, functions and VFs kept off drivers and
network managers, huge pages, locked memory. It shows what it would do with a diff for each file, does it with backups
and a journal, verifies it, and takes it back to the byte. It never reboots a node.

With --root DIR it works on an image: it reads and writes below DIR, and nothing that runs is touched.

`

const fields = `A blueprint is YAML of apiVersion bootstrap.kata-vfio.dev/v1alpha1 and kind NodeBlueprint. Its other fields are optional:
  name                the pool's
  kernel              iommu (On, Passthrough), arguments, hugePages (a list of size, count, node), earlyBinding
  vfio                keepOff (a list of addresses), disableDenylist
  virtualFunctions    a list of pf, count, eswitchMode
  network             leaveVFsAlone
  containers          runtime (Auto, containerd, CRI-O, None), kata (go, rs), base (GPU, NIC), hotPlug, podResourcesSocket
  versions            kernel, containerd, crio, kata, chart; each exact or minimum
  labels              of the Kubernetes node
cmd/kata-vfio-bootstrap/README.md, "Blueprint", describes each field and its default.

`

// codeError ends the program with a code of its own. What is wrong has been printed
// where err is nil.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *codeError) Unwrap() error { return e.err }

// exitCode returns the exit code for an error.
func exitCode(err error) int {
	if e, ok := errors.AsType[*codeError](err); ok {
		return e.code
	}
	if _, ok := errors.AsType[*bootstrap.UnknownError](err); ok {
		return exitUsage
	}
	return command.ExitCode(err)
}

// fail prints an error, unless everything about it has been printed.
func fail(stderr io.Writer, err error) int {
	if e, ok := errors.AsType[*codeError](err); ok && e.err == nil {
		return e.code
	}
	return command.Fail("kata-vfio-bootstrap", exitCode)(stderr, err)
}

// options are the flags that commands share.
type options struct {
	root, blueprint, format string
	// chart is the version of the chart that has this program run.
	chart                  string
	chrootTools, enterNode bool
	// given is the blueprint that standard input had.
	given []byte
}

func formats() command.Formats { return command.Formats{"table", "json", "yaml"} }

// newCommand returns the command tree. Results go to stdout, errors to stderr.
func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "kata-vfio-bootstrap",
		Short: "Make a node fit for kata-vfio, keep it so, and take it back",
		Long:  long + fields + exitCodes,
		Args:  command.NoSubcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.Setup(cmd, stdout, stderr)
	cmd.PersistentFlags().StringVar(&o.root, "root", "/", "the node's root: / or a directory with an image's files")
	cmd.PersistentFlags().BoolVar(&o.enterNode, "enter-node", false,
		"from a privileged pod with hostPID: work where the node's first process does, with its files and tools; the blueprint of -f is read once, before")
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return o.enter(cmd, os.Args) }
	cmd.AddCommand(planCommand(&o), applyCommand(&o), verifyCommand(&o), revertCommand(&o), statusCommand(&o), runCommand(&o),
		command.Version(cmd.Name()+" "+command.Build()))
	return cmd
}

// shared adds the flags of a command that looks at the whole node.
func (o *options) shared(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.blueprint, "blueprint", "f", "",
		"the node's blueprint, - for standard input; else /etc/kata-vfio/blueprint.yaml below the root if it is there, else what was applied last, else the default")
	// The only error is a flag that does not exist.
	_ = cmd.MarkFlagFilename("blueprint", "yaml", "yml", "json")
	cmd.Flags().StringVar(&o.chart, "chart-version", "", "the version of the Helm chart that is installed, for the blueprint's versions.chart; the chart says its own")
}

// check is the PreRunE of each command.
func (o *options) check(*cobra.Command, []string) error {
	// A user who forgot --root means an image, and the machine that builds it must not be changed.
	if root, err := filepath.Abs(o.root); o.chrootTools && (err != nil || root == "/") {
		return command.Usagef("--chroot-tools is for an image: say which by --root DIR, or leave it out for this node itself")
	}
	return formats().Check(o.format)
}

// open opens the node; what it is given back to closes it.
func (o *options) open() (*bootstrap.Engine, error) {
	e, err := bootstrap.Open(o.root, o.chrootTools)
	if err == nil {
		e.Chart = o.chart
	}
	return e, err
}

// defaultBlueprint is where a node's blueprint is, below its root.
const defaultBlueprint = "etc/kata-vfio/blueprint.yaml"

// read returns the blueprint to go by and its text: that of the flag, the node's own,
// what was applied last, or the default, which has no text.
func (o *options) read(e *bootstrap.Engine) (*blueprint.Blueprint, string, error) {
	if o.blueprint != "" {
		return o.readNamed()
	}
	text, err := e.Tree.ReadAtMost(defaultBlueprint, blueprint.MaxSize+1)
	if err == nil {
		return parse("/"+defaultBlueprint, string(text))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("read the blueprint: %w", err)
	}
	report, err := e.Status()
	if err != nil {
		return nil, "", err
	}
	if report.Blueprint == "" {
		return blueprint.Default(), "", nil
	}
	return parse("the blueprint that was applied last", report.Blueprint)
}

// readNamed returns the blueprint of the flag. Standard input is read once and kept.
func (o *options) readNamed() (*blueprint.Blueprint, string, error) {
	if o.blueprint != "-" || o.given == nil {
		text, err := command.ReadArgument(os.Stdin, o.blueprint, blueprint.MaxSize)
		if err != nil {
			return nil, "", fmt.Errorf("read the blueprint: %w", err)
		}
		o.given = text
	}
	return parse(o.blueprint, string(o.given))
}

func parse(name, text string) (*blueprint.Blueprint, string, error) {
	b, err := blueprint.Parse([]byte(text))
	if err != nil {
		return nil, "", command.Usagef("%s: %w", name, err)
	}
	return b, text, nil
}
