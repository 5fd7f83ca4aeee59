package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// tailBytes is how much of a log an error quotes.
const tailBytes = 4000

var errCleanExit = errors.New("exit status 0")

// orNil gives the clean end of QEMU words: with -no-reboot that is how a panic looks.
func orNil(err error) error {
	if err == nil {
		return errCleanExit
	}
	return err
}

// Console is what the machine's kernel and first process have printed since the last boot.
func (m *Machine) Console() ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(m.dir, consoleFile))
	if err != nil {
		return nil, fmt.Errorf("read the lab machine's console: %w", err)
	}
	return text, nil
}

// consoleTail is the end of the console and of QEMU's own messages, for errors.
func (m *Machine) consoleTail() string {
	var out bytes.Buffer
	for _, name := range []string{qemuLog, consoleFile} {
		text, err := os.ReadFile(filepath.Join(m.dir, name))
		if err != nil {
			text = []byte(err.Error())
		}
		if len(text) > tailBytes {
			text = text[len(text)-tailBytes:]
		}
		fmt.Fprintf(&out, "--- %s\n%s\n", name, bytes.TrimSpace(text))
	}
	return out.String()
}
