package guestnet

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// InputError says that what is asked can't be done as it is written: the
// metadata, the config file, or what they ask for. Another run ends the same.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// inputErrorf returns an [InputError].
func inputErrorf(format string, args ...any) error {
	return &InputError{fmt.Errorf(format, args...)}
}

// aboutPFLink names a cause that only the node sees: VF drivers give the VF a random MAC
// address where the PF does not answer, as while its interface is down.
const aboutPFLink = "If the PF's link was down when the VM booted, the VF may have a random MAC address: see the claim's condition LinkUp"

// NotFoundError says that devices had no interface in time. Nothing was
// changed.
type NotFoundError struct {
	// Missing names the devices and by what they were looked for.
	Missing []string
	// Seen are the interfaces that the guest had in the end, with their MACs.
	Seen []string
	Wait time.Duration
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("no interface for %s after %v; the guest has %s. Is the VF's driver in the guest's kernel, and did Kata plug the VF? %s",
		strings.Join(e.Missing, "; "), e.Wait, strings.Join(e.Seen, ", "), aboutPFLink)
}

// NoLinkError says that interfaces had no link in time. Everything else is
// configured, and IPv6 addresses wait for the link too.
type NoLinkError struct {
	Interfaces []string
	Wait       time.Duration
}

func (e *NoLinkError) Error() string {
	return fmt.Sprintf("no link on %s after %v, all else is configured; look at the claim's condition LinkUp, which tells of the PF's link and the VF's linkState, or wait longer",
		strings.Join(e.Interfaces, ", "), e.Wait)
}

// explain adds to a kernel's error what to do about it.
func explain(err error) error {
	switch {
	case errors.Is(err, syscall.EPERM):
		return fmt.Errorf("%w; the container needs the capability NET_ADMIN", err)
	case errors.Is(err, syscall.ENODEV):
		return fmt.Errorf("%w; the interface is gone", err)
	}
	return err
}
