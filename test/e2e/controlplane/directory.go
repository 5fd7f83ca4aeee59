package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

const directoryPrefix = "kata-vfio-controlplane-"

// newDirectory makes a control plane's directory below parent, named by this process, and removes those of processes
// that were killed before they could.
func newDirectory(parent string) (string, error) {
	if err := sweep(parent); err != nil {
		return "", fmt.Errorf("remove what killed control planes left: %w", err)
	}
	return os.MkdirTemp(parent, fmt.Sprintf("%s%d-", directoryPrefix, os.Getpid()))
}

func sweep(parent string) error {
	dirs, err := filepath.Glob(filepath.Join(parent, directoryPrefix+"*-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), directoryPrefix), "-")
		pid, err := strconv.Atoi(owner)
		if err == nil && pid > 0 && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}
