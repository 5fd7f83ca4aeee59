package binaries

import (
	"bytes"
	"sync/atomic"

	"github.com/kata-vfio/kata-vfio/test/internal/tail"
)

// counter counts the packages in the output of go build -v, and keeps the output's end. Its zero value is ready, and
// it is safe for concurrent use.
type counter struct {
	tail.Writer
	count atomic.Int64
}

// Write takes whole lines or parts of them.
func (c *counter) Write(text []byte) (int, error) {
	c.count.Add(int64(bytes.Count(text, []byte("\n"))))
	return c.Writer.Write(text)
}

func (c *counter) packages() int { return int(c.count.Load()) }
