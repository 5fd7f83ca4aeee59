package bootstrap_test

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
)

const (
	stuckParameter = "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"
	stuckOverride  = "sys/bus/pci/devices/0000:3b:00.0/driver_override"
	stuckKeepOff   = "vfio: {keepOff: ['0000:3b:00.0']}\n"
)

// overridden is a node whose apply sets a parameter and an override.
func overridden(t *testing.T) *node {
	n := fit(t)
	n.put("proc/sys/kernel/random/boot_id", "boot-1")
	n.put(stuckParameter, "Y")
	n.put(stuckOverride, "(null)  ")
	n.put("sys/bus/pci/devices/0000:3b:00.0/uevent", "DRIVER=nvidia\n")
	return n
}

// hang makes an engine whose writes of a value to a file are not answered.
func (n *node) hang(name, value string) *bootstrap.Engine {
	e := n.engine()
	e.Attributes = attributes(func(path string, data []byte) error {
		if path == name && string(data) == value {
			return &bootstrap.StuckError{Path: path, Limit: time.Minute}
		}
		return n.set(path, data)
	})
	return e
}

// TestWriteThatHangsIsTakenBack: the kernel carries out a write after the apply that gave up on it, before or after the next run.
func TestWriteThatHangsIsTakenBack(t *testing.T) {
	for name, then := range map[string]func(*testing.T, *node){
		"revert after the kernel's answer": func(_ *testing.T, n *node) { n.put(stuckOverride, "vfio-pci") },
		"revert before it":                 func(*testing.T, *node) {},
		"apply, then revert": func(t *testing.T, n *node) {
			n.put(stuckOverride, "vfio-pci")
			e := n.engine()
			e.Attributes = attributes(n.set)
			if _, err := e.Apply(t.Context(), parse(t, stuckKeepOff), ""); err != nil {
				t.Error(err)
			}
		},
		"revert that hangs, too": func(t *testing.T, n *node) {
			if _, err := n.hang(stuckOverride, "\n").Revert(t.Context()); err == nil || !strings.Contains(err.Error(), "except for /"+stuckOverride) {
				t.Errorf("error %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := overridden(t)
			before := n.snapshot()
			_, err := n.hang(stuckOverride, "vfio-pci").Apply(t.Context(), parse(t, stuckKeepOff), "")
			const want = "the changes are undone, except for /" + stuckOverride + ", which may still change: the next apply or revert continues"
			if err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("error %v", err)
			}
			n.same(before, "after the error")
			if n.read(stuckParameter) != "Y" {
				t.Errorf("the parameter is %q", n.read(stuckParameter))
			}
			then(t, n)
			e := n.engine()
			e.Attributes = attributes(n.set)
			if _, err := e.Revert(t.Context()); err != nil || n.read(stuckOverride) != "\n" {
				t.Errorf("after revert the override is %q, %v", n.read(stuckOverride), err)
			}
			if status, err := n.engine().Status(); err != nil || len(status.Settings) > 0 {
				t.Errorf("then the journal has %+v, %v", status.Settings, err)
			}
		})
	}
}

// TestWriteThatHungDoesNotSurviveABoot: what the override says then is somebody else's.
func TestWriteThatHungDoesNotSurviveABoot(t *testing.T) {
	n := overridden(t)
	if _, err := n.hang(stuckOverride, "vfio-pci").Apply(t.Context(), parse(t, stuckKeepOff), ""); err == nil {
		t.Fatal("no error")
	}
	n.put("proc/sys/kernel/random/boot_id", "boot-2")
	n.put(stuckOverride, "mine")
	e := n.engine()
	e.Attributes = attributes(n.set)
	if _, err := e.Revert(t.Context()); err != nil || n.read(stuckOverride) != "mine" {
		t.Errorf("after revert the override is %q, %v", n.read(stuckOverride), err)
	}
}

// TestSettingThatCantBeRestoredStaysInTheJournal: the write of another one failed, and its own way back, too.
func TestSettingThatCantBeRestoredStaysInTheJournal(t *testing.T) {
	n := overridden(t)
	e := n.engine()
	e.Attributes = attributes(func(path string, data []byte) error {
		if path == stuckOverride || string(data) == "Y" {
			return unix.EIO
		}
		return n.set(path, data)
	})
	if _, err := e.Apply(t.Context(), parse(t, stuckKeepOff), ""); err == nil || !strings.Contains(err.Error(), "except for /"+stuckParameter+",") {
		t.Errorf("error %v", err)
	}
	e.Attributes = attributes(n.set)
	if _, err := e.Revert(t.Context()); err != nil || n.read(stuckParameter) != "Y" {
		t.Errorf("after revert the parameter is %q, %v", n.read(stuckParameter), err)
	}
}
