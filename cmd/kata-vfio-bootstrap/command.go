package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/writer"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// Exit codes, as the help documents them.
const (
	exitFailed = command.Failed
	exitUsage  = command.Usage
	// exitChanges: changes are needed, or, with --detailed-exitcode, were made.
	exitChanges = 3
	// exitReboot: the files match, and the node needs a reboot.
	exitReboot = 4
	// exitImpossible: bootstrap can't remove an obstacle.
	exitImpossible = 5
)

const exitCodes = `Exit codes:
  0  the node matches the blueprint. apply, revert: done, also if changes were made
  1  something failed; changes are undone, or the message says which remain
  2  the command line or the blueprint is wrong
  3  plan, verify, apply --dry-run: changes are needed. apply, revert with --detailed-exitcode: changes were made
  4  the files match, and the node needs a reboot
  5  the node can't match, and nothing was changed: the problems say what to change in the firmware setup or in files.
     Or a reboot did not apply the files, and another one would not either: the problems say where to look.
     revert: files that were edited after apply are kept, and the others are reverted`

const long = `kata-vfio-bootstrap configures a node as its blueprint says: the kernel's IOMMU arguments through the node's boot loader,
VFIO's modules and their options, rules that keep host drivers and network managers off functions and VFs, huge pages
and locked memory. It shows a diff for each file, keeps backups and a journal, verifies the node, and reverts each file
to its original bytes. It never reboots a node.

With --root DIR it works on an image: it reads and writes only below DIR, and changes nothing that runs.

`

const fields = `A blueprint is YAML of apiVersion bootstrap.kata-vfio.dev/v1alpha1 and kind NodeBlueprint. Its other fields are optional:
  name                the pool's name
  kernel              iommu (On, Passthrough), arguments, hugePages (a list of size, count, node or device), earlyBinding
  vfio                keepOff (a list of addresses), keepOffMatching (a list of types, vendors, devices, classes, addresses; not pfNames),
                      resetMethods (a list of match, as in keepOffMatching but without types, and methods), allowBootConsole, disableDenylist
  virtualFunctions    a list of pf, count, eswitchMode, optional
  fabric              partitions, activate (a list of numbers)
  network             leaveVFsAlone
  containers          runtime (Auto, containerd, CRI-O, None), kata (go, rs), base (GPU, NIC), nicHandler, hotPlug, podResourcesSocket
  versions            kernel, containerd, crio, kata, chart; each exact or minimum
  labels              of the Kubernetes node
cmd/kata-vfio-bootstrap/README.md, "Blueprint", describes each field and its default.

`

// codeError ends the program with its code. If err is nil, the reason has been printed.
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

// fail prints an error, unless its reason has been printed.
func fail(stderr io.Writer, err error) int {
	if e, ok := errors.AsType[*codeError](err); ok && e.err == nil {
		return e.code
	}
	return command.Fail("kata-vfio-bootstrap", exitCode)(stderr, err)
}

// options are the flags that commands share.
type options struct {
	root, blueprint, format string
	// chart is the version of the chart that runs this program.
	chart                  string
	chrootTools, enterNode bool
	// entered is true in the program that another one has started in the node.
	entered bool
	// dryRun makes apply show the plan only. detailed makes apply and revert end with an exit code of its own if changes were
	// made.
	dryRun, detailed bool
	// summary makes plan show no diffs.
	summary bool
	// given is the blueprint from standard input.
	given []byte
}

func formats() command.Formats { return command.Formats{"table", "json", "yaml"} }

// newCommand returns the command tree. Results go to stdout, errors to stderr.
func newCommand(stdout, stderr io.Writer) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "kata-vfio-bootstrap",
		Short: "Configure a node for kata-vfio, verify it, and revert it",
		Long:  long + fields + exitCodes,
		Args:  command.NoSubcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	command.Setup(cmd, stdout, stderr)
	cmd.PersistentFlags().StringVar(&o.root, "root", "/", "the node's root: / or a directory with an image's files")
	cmd.PersistentFlags().BoolVar(&o.enterNode, "enter-node", false,
		"in a privileged pod with hostPID: run in the mount namespace of the node's first process, with the node's files and tools; reads the blueprint of -f once, in the pod")
	cmd.PersistentFlags().BoolVar(&o.entered, enteredFlag, false, "")
	// The only error is a flag that does not exist.
	_ = cmd.PersistentFlags().MarkHidden(enteredFlag)
	cmd.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return o.enter(cmd, os.Args) }
	cmd.AddCommand(planCommand(&o), applyCommand(&o), verifyCommand(&o), revertCommand(&o), statusCommand(&o), modulesCommand(&o), runCommand(&o), command.ExplainCommand("kata-vfio-bootstrap", exitCodes))
	command.AddVersion(cmd, cmd.Name()+" "+command.Build())
	return cmd
}

// shared adds the flags of a command that looks at the whole node.
func (o *options) shared(cmd *cobra.Command) {
	command.OnceVarP(cmd.Flags(), &o.blueprint, "blueprint", "f",
		"the node's blueprint; - is standard input. Without it: /etc/kata-vfio/blueprint.yaml below the root, or the blueprint that was last applied, or the default")
	// The only error is a flag that does not exist.
	_ = cmd.MarkFlagFilename("blueprint", "yaml", "yml", "json")
	cmd.Flags().StringVar(&o.chart, "chart-version", "", "the version of the installed Helm chart, for the blueprint's versions.chart; the chart passes its own")
}

// check is the PreRunE of each command.
func (o *options) check(*cobra.Command, []string) error {
	// Without --root, the build machine would be changed instead of the image.
	root, err := filepath.Abs(o.root)
	if err != nil {
		return command.Usagef("--root %s has no absolute path: %v", o.root, err)
	}
	if o.chrootTools && root == "/" {
		return command.Usagef("--chroot-tools needs an image: add --root DIR, or remove --chroot-tools to configure this node")
	}
	return formats().Check(o.format)
}

// open opens the node. The caller closes it.
func (o *options) open() (*bootstrap.Engine, error) {
	e, err := writer.Open(o.root, o.chrootTools)
	if err == nil {
		e.Chart = o.chart
	}
	return e, err
}

// read returns the blueprint and its text: the one of the flag, the node's own, the one
// that was last applied, or the default, which has no text.
func (o *options) read(e *bootstrap.Engine) (*blueprint.Blueprint, string, error) {
	if o.blueprint != "" {
		return o.readNamed()
	}
	text, source, err := e.Blueprint()
	if err != nil {
		return nil, "", err
	}
	if source == "" {
		return blueprint.Default(), "", nil
	}
	return parse(source, text)
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
