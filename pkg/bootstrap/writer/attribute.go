package writer

import (
	"path"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// writeLimit is how long the kernel may take for a write. It creates VFs one by one.
const writeLimit = control.NumVFsLimit

// pagesLimit is how long the kernel may take for huge pages. It moves other pages out of the way if memory is fragmented.
const pagesLimit = 10 * time.Minute

// attributeWriter writes attributes, and waits at most for the limit of each.
type attributeWriter struct{ control.Writer }

// Write implements [bootstrap.Attributes]. A write that hangs can't be canceled. It ends when the kernel answers, and may have
// its effect then.
func (w attributeWriter) Write(name string, data []byte) error {
	done := make(chan error, 1)
	go func() { done <- w.Writer.Write(name, data) }()
	limit := time.NewTimer(patience(name))
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return &bootstrap.StuckError{Path: name, Limit: patience(name)}
	}
}

// patience returns how long the write of a file may take.
func patience(name string) time.Duration {
	if path.Base(name) == "nr_hugepages" {
		return pagesLimit
	}
	return writeLimit
}
