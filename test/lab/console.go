package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

// trouble begins what a kernel prints when it is about to end.
var trouble = regexp.MustCompile(`BUG: |Oops|Kernel panic|general protection fault|Bad page`)

// consoleTail returns the end of the console and of QEMU's own messages, for errors. If the kernel was in trouble, it returns
// the text from the beginning of the trouble on, because what follows stems from it.
func (m *Machine) consoleTail() string {
	var out bytes.Buffer
	for _, name := range []string{qemuLog, consoleFile} {
		text, err := os.ReadFile(filepath.Join(m.dir, name))
		if err != nil {
			text = []byte(err.Error())
		}
		fmt.Fprintf(&out, "--- %s\n%s\n", name, bytes.TrimSpace(quote(text)))
	}
	return out.String()
}

// quote is what an error quotes of a log.
func quote(text []byte) []byte {
	if at := trouble.FindIndex(text); at != nil {
		text = text[at[0]:]
		return text[:min(len(text), tailBytes)]
	}
	return text[max(0, len(text)-tailBytes):]
}
