// Package scratch makes directories that do not outlive their owners: what a killed process could not remove, the next process
// removes.
package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// New makes a directory below parent, named by the prefix, which ends in "-", and this process. It first removes those
// of the same prefix whose processes are gone. The caller removes what it has made.
func New(parent, prefix string) (string, error) {
	if err := sweep(parent, prefix); err != nil {
		return "", fmt.Errorf("remove what killed processes left: %w", err)
	}
	return os.MkdirTemp(parent, fmt.Sprintf("%s%d-", prefix, os.Getpid()))
}

func sweep(parent, prefix string) error {
	dirs, err := filepath.Glob(filepath.Join(parent, prefix+"*-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		pid, err := strconv.Atoi(owner)
		if err == nil && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}
