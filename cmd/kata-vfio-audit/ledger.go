package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/command"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// ledgerDir is where a node's ledger lies, below its root.
const ledgerDir = "var/lib/kata-vfio/ledger"

const ledgerExitCodes = `Exit codes:
  0  done; nothing is wrong with the ledger
  1  there is no ledger, or it could not be read, or the output not written
  2  the command line or a file that it names is wrong
  5  the verification failed: it was changed, cut off, or signed by another key`

// book is where a ledger is read from.
type book struct {
	tree *tree
	dir  string
}

func ledgerCommand(t *tree) *cobra.Command {
	h := &book{tree: t}
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "Show, verify and prove the node's history: who held which device, when",
		Long: "The plugin keeps a ledger on each node: every prepare, bind, reset, hand-over to a VM and way back, chained by\n" +
			"hashes and signed. What it can prove: nothing before a checkpoint that was kept off the node (an anchor; the\n" +
			"plugin puts them into claims' statuses and Events) was rewritten, left out or put back from a backup. What it\n" +
			"can't: that what root on the node wrote was true, and anything behind the last anchor.\n\n" + ledgerExitCodes,
		Args: command.NoSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&h.dir, "dir", "", "the ledger's directory (default: "+ledgerDir+" below --root)")
	cmd.AddCommand(ledgerShowCommand(h), ledgerVerifyCommand(h), ledgerProveCommand(h))
	return cmd
}

// open returns the ledger's files, for reading only. The caller closes them.
func (h *book) open() (fs.FS, io.Closer, error) {
	dir, unpacked := h.dir, io.Closer(nopCloser{})
	if dir == "" {
		node, err := h.tree.open()
		if err != nil {
			return nil, nil, err
		}
		dir, unpacked = filepath.Join(node.Path(), ledgerDir), node
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, errors.Join(h.absent(dir, err), unpacked.Close())
	}
	return root.FS(), closers{root, unpacked}, nil
}

func (h *book) absent(dir string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no ledger in %s: no plugin has worked there, or it lies elsewhere (--dir)", dir)
	}
	return fmt.Errorf("open ledger: %w; it is root's alone", err)
}

// closers closes one thing after the other.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

type nopCloser struct{}

func (nopCloser) Close() error { return nil }

// readArgument reads a file that the command line names, "-" being standard input.
func readArgument(stdin io.Reader, name string, limit int64) ([]byte, error) {
	in := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, command.Usagef("%w", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, command.Usagef("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, command.Usagef("%s has more than %d bytes", name, limit)
	}
	return data, nil
}

// keyOf returns a public key that the command line names: the key, or a file with it.
func keyOf(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	if data, err := os.ReadFile(text); err == nil {
		text = string(data)
	}
	key := strings.TrimSpace(text)
	if err := ledger.CheckKey(key); err != nil {
		return "", command.Usagef("--key: %w: want the public key, <name>+<hash>+<key>, or a file that holds it (key.pub of the node's ledger)", err)
	}
	return key, nil
}
