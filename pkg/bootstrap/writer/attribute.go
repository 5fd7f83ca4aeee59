package writer

import (
	"errors"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// writeLimit is how long the kernel may take for a write. It creates VFs one by one.
const writeLimit = control.NumVFsLimit

// errStuck is the error of a write that the kernel does not answer.
var errStuck = errors.New("the kernel does not answer: an operation on the function hangs and holds its device lock. Drain and reboot the node if it does not end")

// attributeWriter writes attributes, and waits at most for the limit.
type attributeWriter struct {
	control.Writer
	limit time.Duration
}

// Write implements [control.Writer]. A write that hangs can't be canceled. It ends when the kernel answers, and may have
// its effect then.
func (w attributeWriter) Write(path string, data []byte) error {
	done := make(chan error, 1)
	go func() { done <- w.Writer.Write(path, data) }()
	limit := time.NewTimer(w.limit)
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return errStuck
	}
}
