//go:build labhost

package lab_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/remote"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// testMachine tries what the lab promises to its users.
func testMachine(t *testing.T, m *lab.Machine) {
	t.Run("Command", func(t *testing.T) { testCommand(t, m) })
	t.Run("Cancel", func(t *testing.T) { testCancel(t, m) })
	t.Run("Share", func(t *testing.T) { testShare(t, m) })
	t.Run("Monitor", func(t *testing.T) { testMonitor(t, m) })
}

// testBoots tries what takes a boot each.
func testBoots(t *testing.T, m *lab.Machine) {
	t.Run("HardReset", func(t *testing.T) { testHardReset(t, m) })
	t.Run("GroupNumbersChange", func(t *testing.T) { testGroupNumbers(t, m) })
	t.Run("Lost", func(t *testing.T) { testLost(t, m) })
	t.Run("Hung", func(t *testing.T) { testHung(t, m) })
}

func shell(t *testing.T, m *lab.Machine, script string) string {
	t.Helper()
	out, err := m.Command(t.Context(), "sh", "-ec", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func testCommand(t *testing.T, m *lab.Machine) {
	cmd := m.Command(t.Context(), "sh", "-c", `cat; echo "$WORD in $PWD"; echo oops >&2; exit 3`)
	cmd.Stdin, cmd.Dir, cmd.Env = strings.NewReader("typed\n"), "/tmp", []string{"WORD=word"}
	out, err := cmd.Output()
	if want := "typed\nword in /tmp\n"; string(out) != want {
		t.Errorf("the output is %q, want %q", out, want)
	}
	var failed *remote.ExitError
	if !errors.As(err, &failed) || failed.Code != 3 || string(failed.Stderr) != "oops\n" {
		t.Errorf("the error is %v, want exit status 3 and what was said", err)
	}
	if err := m.Command(t.Context(), "no-such-program").Run(); !errors.As(err, &failed) || failed.Code != -1 {
		t.Errorf("the error of a program that does not exist is %v", err)
	}
}

// The end of a command's context ends it in the machine, with its children.
func testCancel(t *testing.T, m *lab.Machine) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := m.Command(ctx, "sh", "-c", "sleep 4321 & sleep 4321").Run()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the error is %v, want the context's", err)
	}
	count := "pgrep -cx sleep || true"
	for end := time.Now().Add(30 * time.Second); shell(t, m, count) != "0"; {
		if time.Now().After(end) {
			t.Fatalf("the command runs on in the machine: %s", shell(t, m, "ps ax"))
		}
	}
}

// Both sides see what the other has written.
func testShare(t *testing.T, m *lab.Machine) {
	from := filepath.Join(m.Share(), "from-host")
	for _, text := range []string{"one", "two, longer"} {
		if err := os.WriteFile(from, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := shell(t, m, "cat /host/from-host; cp /host/from-host /host/from-machine"); got != text {
			t.Errorf("the machine reads %q, want %q", got, text)
		}
		got, err := os.ReadFile(filepath.Join(m.Share(), "from-machine"))
		if err != nil || string(got) != text {
			t.Errorf("the host reads %q, %v; want %q", got, err, text)
		}
	}
}

// A device can be pulled out of the running machine.
func testMonitor(t *testing.T, m *lab.Machine) {
	if out, err := m.Monitor(t.Context(), "device_del nic0"); err != nil || out != "" {
		t.Fatalf("device_del: %q, %v", out, err)
	}
	gone := "test -e /sys/bus/pci/devices/" + topology.NIC0 + " && echo there || echo gone"
	for end := time.Now().Add(60 * time.Second); shell(t, m, gone) != "gone"; {
		if time.Now().After(end) {
			t.Fatalf("%s is still there", topology.NIC0)
		}
	}
	if out, err := m.Monitor(t.Context(), "no_such_command"); err == nil && !strings.Contains(out, "unknown command") {
		t.Errorf("an unknown monitor command says %q", out)
	}
}

// A reset keeps what was written to the disk durably, and nothing else.
func testHardReset(t *testing.T, m *lab.Machine) {
	const state = "/var/lib/labtest"
	before := shell(t, m, "cat /proc/sys/kernel/random/boot_id")
	shell(t, m, "mkdir "+state+"; echo kept > "+state+"/kept; sync "+state+"/kept "+state+"; touch /root/fresh")
	shell(t, m, "echo lost > "+state+"/lost")
	if err := m.HardReset(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := shell(t, m, "cat /proc/sys/kernel/random/boot_id"); after == before {
		t.Error("the boot ID is the one before the reset")
	}
	if got := shell(t, m, "ls "+state+" /root; cat "+state+"/kept"); got != "/root:\n\n"+state+":\nkept\nkept" {
		t.Errorf("after the reset, the machine has: %q", got)
	}
}

// A device more on the first root complex moves the group numbers of what is enumerated after it, and no address.
func testGroupNumbers(t *testing.T, m *lab.Machine) {
	group := "basename $(readlink /sys/bus/pci/devices/" + topology.GPU0 + "/iommu_group)"
	before := shell(t, m, group)
	m.Reconfigure(func(c *lab.Config) {
		more := topology.Standard()
		last := len(more.Roots) - 1
		more.Roots[last].Ports = append(more.Roots[last].Ports, topology.RootPort("extra", topology.Display("extragpu")))
		c.Topology = &more
	})
	if err := m.Reboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := shell(t, m, group); after == before {
		t.Errorf("the group of %s is %s, as before", topology.GPU0, after)
	}
}

// A panic is told as what it is, with the kernel's words.
func testLost(t *testing.T, m *lab.Machine) {
	if err := m.Lost(); err != nil {
		t.Fatal(err)
	}
	err := m.Command(t.Context(), "sh", "-c", "echo c > /proc/sysrq-trigger; sleep 100").Run()
	if err == nil {
		t.Error("a command outlived the machine's kernel")
	}
	if err := m.LostWithin(time.Minute); !errors.Is(err, lab.ErrLost) || !strings.Contains(err.Error(), "sysrq triggered crash") {
		t.Errorf("the error is %v, want ErrLost with the panic's message", err)
	}
}

// A machine whose processors stand still is ended, and with it the command that waits for it.
func testHung(t *testing.T, m *lab.Machine) {
	m.Reconfigure(func(c *lab.Config) { c.Silence = 20 * time.Second })
	if err := m.HardReset(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- m.Command(t.Context(), "sleep", "1000").Run() }()
	if out, err := m.Monitor(t.Context(), "stop"); err != nil || out != "" {
		t.Fatalf("stop: %q, %v", out, err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a command ended well on a machine that stands still")
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("nobody ended the machine")
	}
	if err := m.LostWithin(time.Minute); !errors.Is(err, lab.ErrLost) || !strings.Contains(err.Error(), "no sign of life") {
		t.Errorf("the error is %v, want ErrLost and why", err)
	}
}
