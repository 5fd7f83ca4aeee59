package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"syscall"
	"unique"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// attributes reads the attributes of one directory and keeps the first error, so that a reader of thirty attributes checks for errors once,
// at the end. After an error, and if the directory itself is absent, every attribute reads as absent.
type attributes struct {
	dir    *sysfs.Dir // nil when absent
	err    error
	parent *attributes // gets the error on close; nil at the top
}

// sub returns the attributes of a directory in a; close them.
func (a *attributes) sub(name string) *attributes {
	sub := &attributes{parent: a}
	if a.usable() {
		sub.dir, _, a.err = a.dir.Sub(name)
	}
	return sub
}

// close closes a directory that sub opened and hands its error on.
func (a *attributes) close() {
	if a.dir != nil {
		a.dir.Close()
	}
	if a.parent.err == nil {
		a.parent.err = a.err
	}
}

func (a *attributes) usable() bool { return a.dir != nil && a.err == nil }

// text returns an attribute without the space around it; false when absent.
func (a *attributes) text(name string) (string, bool) {
	if !a.usable() {
		return "", false
	}
	text, ok, err := a.dir.Text(name)
	a.err = err
	return text, ok
}

// word returns an attribute that has few different values on a node, so that equal values share memory; empty if it is absent.
func (a *attributes) word(name string) string {
	text, _ := a.text(name)
	return unique.Make(text).Value()
}

// answered returns an attribute for which the kernel reads the device's registers. If the device does not answer, the kernel returns
// EINVAL, which reads as absent.
func (a *attributes) answered(name string) string {
	if !a.usable() {
		return ""
	}
	text, _, err := a.dir.Text(name)
	if !errors.Is(err, syscall.EINVAL) {
		a.err = err
	}
	return text
}

// underRTNL returns an attribute of a network interface that the kernel reads under RTNL; empty if the interface does not
// have it or does not know it (EINVAL). It returns false while the lock is unavailable.
func (a *attributes) underRTNL(name string) (text string, ok bool) {
	if !a.usable() {
		return "", true
	}
	text, _, err := a.dir.InterfaceText(name)
	if errors.Is(err, sysfs.ErrLocked) {
		return "", false
	}
	if !errors.Is(err, syscall.EINVAL) {
		a.err = err
	}
	return text, true
}

// required returns an attribute with a number that every function has. Its absence is an error.
func (a *attributes) required(name string, bits int) uint64 {
	n, ok := a.number(name, bits)
	if !ok {
		a.fail(name, fs.ErrNotExist)
	}
	return n
}

// hex returns a number that sysfs prints as "0x10de", 0 when absent.
func (a *attributes) hex(name string, bits int) uint64 {
	n, _ := a.number(name, bits)
	return n
}

func (a *attributes) number(name string, bits int) (uint64, bool) {
	text, ok := a.text(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 0, bits)
	if err != nil {
		a.fail(name, err)
		return 0, false
	}
	return n, true
}

// integer returns a decimal number, which may be negative; false when absent.
func (a *attributes) integer(name string) (int, bool) {
	text, ok := a.text(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		a.fail(name, err)
		return 0, false
	}
	return n, true
}

// on reports whether a switch reads 1, Y or y; false when it is absent.
func (a *attributes) on(name string) bool {
	text, _ := a.text(name)
	return isOn(text)
}

// isOn reads the kernel's boolean parameters and attributes.
func isOn(text string) bool { return text == "1" || text == "Y" || text == "y" }

// link returns the last element of a link's target; empty when absent.
func (a *attributes) link(name string) string {
	if !a.usable() {
		return ""
	}
	target, ok, err := a.dir.Link(name)
	a.err = err
	if !ok {
		return ""
	}
	return path.Base(target)
}

// list returns the names in a directory; nil when absent.
func (a *attributes) list(name string) []string {
	if !a.usable() {
		return nil
	}
	names, _, err := a.dir.List(name)
	a.err = err
	return names
}

// names lists the directory itself; nil when absent.
func (a *attributes) names() []string {
	if !a.usable() {
		return nil
	}
	names, err := a.dir.Names()
	a.err = err
	return names
}

// fail records that an attribute was read but makes no sense.
func (a *attributes) fail(name string, err error) {
	if a.err == nil {
		a.err = fmt.Errorf("read %s/%s: %w", a.dir.Path(), name, err)
	}
}

// words splits an attribute into its words.
func (a *attributes) words(name string) []string {
	text, _ := a.text(name)
	return strings.Fields(text)
}
