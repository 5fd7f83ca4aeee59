package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

const ledgerExitCodes = "Exit codes:\n" +
	"  0  done; the ledger is sound\n" +
	"  1  there is no ledger and no trace of one, it could not be read, or the output could not be written\n" +
	"  2  the command line or a file that it names is wrong\n" +
	"  5  the verification failed: the ledger was changed, cut off, deleted, or signed by another key"

// book is the source of a ledger.
type book struct {
	tree *tree
	dir  string
}

func ledgerCommand(t *tree) *cobra.Command {
	h := &book{tree: t}
	cmd := &cobra.Command{
		Use:   "ledger",
		Short: "Verify and prove the node's history: who held which device, when",
		Long: "The plugin keeps a ledger on each node: every prepare, bind, reset, hand-over to a VM and release, chained by\n" +
			"hashes and signed. The ledger proves that nothing before an anchor was rewritten, left out or restored from a backup.\n" +
			"An anchor is a checkpoint that is kept off the node; the plugin writes anchors to claims' statuses and Events. The\n" +
			"ledger does not prove that what root on the node wrote is true, nor anything after the last anchor.\n" +
			"\n" +
			ledgerExitCodes,
		Args: command.NoSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&h.dir, "dir", "", "the ledger's directory (default: "+ledger.DefaultDir+" below --root)")
	cmd.AddCommand(ledgerShowCommand(h), ledgerVerifyCommand(h), ledgerProveCommand(h))
	return cmd
}

// open returns the ledger, for reading only. The caller closes it.
func (h *book) open() (*openedLedger, error) {
	if h.dir != "" {
		return openLedger(h.dir)
	}
	node, err := h.tree.open()
	if err != nil {
		return nil, err
	}
	l, err := node.openLedger()
	if err != nil {
		return nil, errors.Join(err, node.Close())
	}
	l.closer = closers{l.closer, node}
	return l, nil
}

// openedLedger has a ledger's files, for reading only. It has none if the directory does not exist.
type openedLedger struct {
	files  fs.FS
	closer io.Closer
	dir    string
	// leftOut names the parts of it that an archive leaves out.
	leftOut string
	// witness names other files of the node that prove a ledger existed; see [ledger.Options].
	witness string
}

// openLedger opens the ledger of the node or, for an archive, the ledger in it.
func (o *opened) openLedger() (*openedLedger, error) {
	leftOut := ""
	if o.manifest != nil {
		if kept := o.manifest.Ledger; kept != nil && kept.Reason != "" {
			return nil, errors.New(kept.String())
		}
		leftOut = o.manifest.Ledger.String()
	}
	l, err := openLedger(filepath.Join(o.fs.Path(), ledger.DefaultDir))
	if err != nil {
		return nil, err
	}
	l.leftOut = leftOut
	if known, err := o.fs.Exists(journal.DefaultDir); err == nil && known {
		l.witness = fmt.Sprintf("the plugin's journal exists (/%s), so there must be a ledger: it was deleted, or is elsewhere (--dir)", journal.DefaultDir)
	}
	return l, nil
}

func openLedger(dir string) (*openedLedger, error) {
	root, err := os.OpenRoot(dir)
	// Absent files cause no error here: only the verification knows whether there must be a ledger.
	if errors.Is(err, fs.ErrNotExist) {
		return &openedLedger{files: absent{}, closer: closers{}, dir: dir}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w; only root can read it", err)
	}
	return &openedLedger{files: root.FS(), closer: root, dir: dir}, nil
}

// absent is a directory that does not exist.
type absent struct{}

func (absent) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// verify verifies the ledger.
func (l *openedLedger) verify(ctx context.Context, o ledger.Options) (*ledger.Report, error) {
	o.Witness = l.witness
	r, err := ledger.VerifyContext(ctx, l.files, o)
	return r, l.failed(ctx, err)
}

// history verifies the ledger and returns its tenancies.
func (l *openedLedger) history(ctx context.Context, o ledger.Options) (*facts.History, facts.Verification, error) {
	o.Witness = l.witness
	h, s, err := facts.ReadHistory(ctx, l.files, o)
	if err == nil && l.leftOut != "" {
		s.Doubts = append(s.Doubts, l.leftOut)
	}
	return h, s, l.failed(ctx, err)
}

// failed adds to the error of an unreadable ledger where the ledger is, or the evidence that it was deleted. A ledger that
// can't be verified without a key counts as a ledger that failed its verification.
func (l *openedLedger) failed(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ledger.ErrNone):
		if r, gone := ledger.VerifyContext(ctx, l.files, ledger.Options{Witness: l.witness}); gone == nil && !r.OK() {
			return &verdictError{code: exitLedger, text: fmt.Sprintf("%s: %s", l.dir, r.Problems[0].What)}
		}
		return fmt.Errorf("%w in %s: no plugin has run there, or the ledger is elsewhere (--dir)", err, l.dir)
	case errors.Is(err, ledger.ErrNoKey):
		return &verdictError{code: exitLedger, text: err.Error()}
	}
	return err
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

// readKey returns a public key that the command line names: the key, or a file with it.
func readKey(text string) (string, error) {
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
