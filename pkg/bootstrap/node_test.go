package bootstrap_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/writer"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
)

// node is a node as a tree of files, with tools that keep to the contracts of real ones.
type node struct {
	t     *testing.T
	root  string
	tools *tools
	// files wraps the disk where a test wants it to fail.
	files func(bootstrap.Files) bootstrap.Files
	// image: it is not running.
	image bool
	// disks asks the kernel which disks are in use; nil if it can't be asked.
	disks bootstrap.Disks
}

func newNode(t *testing.T, files ...map[string]string) *node {
	t.Helper()
	n := &node{t: t, root: t.TempDir()}
	n.tools = &tools{root: n.root}
	n.put("run/systemd/system/.keep", "")
	n.put("run/udev/control", "")
	for _, layer := range files {
		for name, content := range layer {
			n.put(name, content)
		}
	}
	return n
}

// put writes a file, or a link for "-> target". Programs can be run.
func (n *node) put(name, content string) {
	n.t.Helper()
	mode := fs.FileMode(0o644)
	if strings.HasPrefix(name, "usr/sbin/") || strings.HasPrefix(name, "usr/bin/") {
		mode = 0o755
	}
	file := filepath.Join(n.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.t.Fatal(err)
	}
	_ = os.Remove(file)
	var err error
	if target, ok := strings.CutPrefix(content, "-> "); ok {
		err = os.Symlink(target, file)
	} else {
		err = os.WriteFile(file, []byte(content), mode)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) read(name string) string {
	n.t.Helper()
	data, err := os.ReadFile(filepath.Join(n.root, name))
	if err != nil {
		n.t.Fatal(err)
	}
	return string(data)
}

// engine returns what works on the node, as a process of its own would.
func (n *node) engine() *bootstrap.Engine {
	n.t.Helper()
	tree, err := sysfs.Open(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	files, err := writer.OpenDisk(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	attributes, err := control.NewWriter(n.root)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = errors.Join(tree.Close(), files.Close(), attributes.Close()) })
	e := &bootstrap.Engine{Root: n.root, Live: !n.image, Tree: tree, Files: files, Parts: bootstrap.Parts(), Now: time.Now, Disks: n.disks}
	if n.files != nil {
		e.Files = n.files(files)
	}
	if !n.image {
		e.Attributes, e.Tools = attributes, n.tools
	}
	return e
}

func (n *node) plan(b *blueprint.Blueprint) *bootstrap.Plan {
	n.t.Helper()
	p, err := n.engine().Plan(n.t.Context(), b)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, problem := range p.Problems {
		if problem.Code == "" {
			n.t.Errorf("the problem %+v has no code", problem)
		}
	}
	return p
}

func (n *node) apply(b *blueprint.Blueprint) *bootstrap.Result {
	n.t.Helper()
	r, err := n.engine().Apply(n.t.Context(), b, "")
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

func (n *node) revert(paths ...string) *bootstrap.Result {
	n.t.Helper()
	r, err := n.engine().Revert(n.t.Context(), paths...)
	if err != nil {
		n.t.Fatal(err)
	}
	return r
}

// snapshot is every file with its mode and content, except for the kernel's and ours.
func (n *node) snapshot() map[string]string {
	n.t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(n.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at, _ := filepath.Rel(n.root, name)
		if at == "proc" || at == "sys" || at == "var/lib/kata-vfio" {
			return filepath.SkipDir
		}
		if at == "var" || at == "var/lib" {
			return nil // where our own journal is
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			content, err = os.Readlink(name)
		case d.Type().IsRegular():
			var data []byte
			data, err = os.ReadFile(name)
			content = string(data)
		}
		all[at] = fmt.Sprintf("%v %s", info.Mode(), content)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	return all
}

func (n *node) same(want map[string]string, when string) {
	n.t.Helper()
	if diff := cmp.Diff(want, n.snapshot()); diff != "" {
		n.t.Errorf("%s the node differs (-want +got):\n%s", when, diff)
	}
}

// reboot has the kernel started as the boot loader is set up.
func (n *node) reboot() {
	n.t.Helper()
	n.put("proc/cmdline", n.tools.commandLine(n.t)+"\n")
	n.put("proc/sys/kernel/random/boot_id", n.read("proc/sys/kernel/random/boot_id")+"1")
}

// tools run as the real ones do, as far as the node's files are concerned.
type tools struct {
	root string
	ran  []string
	fail error
	// failing fails where the command line begins so, all of them when empty.
	failing string
	// before is asked before each.
	before func() error
}

func (s *tools) Run(ctx context.Context, argv []string) error {
	if s.before != nil {
		if err := s.before(); err != nil {
			return err
		}
	}
	s.ran = append(s.ran, strings.Join(argv, " "))
	if s.fail != nil && strings.HasPrefix(strings.Join(argv, " "), s.failing) {
		return s.fail
	}
	switch filepath.Base(argv[0]) {
	case "update-grub":
		return s.mkconfig(ctx, "boot/grub/grub.cfg", true)
	case "grub2-mkconfig":
		return s.mkconfig(ctx, strings.TrimPrefix(argv[2], "/"), false)
	case "u-boot-update":
		return s.uBootUpdate(ctx)
	case "systemctl":
		return s.systemctl(argv[1], argv[2:])
	}
	return nil
}

// systemctl starts no unit that has no file, and of names that are not a pattern stops none either.
func (s *tools) systemctl(verb string, units []string) error {
	if verb != "start" && verb != "stop" {
		return nil
	}
	for _, unit := range units {
		if strings.Contains(unit, "*") {
			continue
		}
		_, admins := os.Stat(filepath.Join(s.root, "etc/systemd/system", unit))
		_, packaged := os.Stat(filepath.Join(s.root, "usr/lib/systemd/system", unit))
		if admins != nil && packaged != nil {
			return fmt.Errorf("failed to %s %s: Unit %s not found", verb, unit, unit)
		}
	}
	return nil
}

// shell runs a script in the node's root and returns its output.
func (s *tools) shell(ctx context.Context, script string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-eu", "-c", "set +u\n"+script)
	cmd.Dir = s.root
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return string(out), nil
}

// mkconfig sources the settings as grub-mkconfig does: Debian's also fragments. It
// sources everything twice, as tools that call each other do.
func (s *tools) mkconfig(ctx context.Context, file string, fragments bool) error {
	once := ". ./etc/default/grub\n"
	if fragments {
		once += "for x in etc/default/grub.d/*.cfg; do if [ -e \"$x\" ]; then . \"./$x\"; fi; done\n"
	}
	out, err := s.shell(ctx, once+once+`echo "linux /vmlinuz root=/dev/sda1 ro $GRUB_CMDLINE_LINUX $GRUB_CMDLINE_LINUX_DEFAULT"`)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.root, file), []byte(out), 0o600)
}

// uBootUpdate does as u-boot-menu 4.2 does with the variable.
func (s *tools) uBootUpdate(ctx context.Context) error {
	out, err := s.shell(ctx, `if [ -e etc/default/u-boot ]; then . ./etc/default/u-boot; fi
if grep -q u-boot-menu/conf.d usr/sbin/u-boot-update; then
for file in etc/u-boot-menu/conf.d/*.conf; do if [ -e "$file" ]; then . "./$file"; fi; done
fi
if [ -z "$U_BOOT_PARAMETERS" ] && [ -f etc/kernel/cmdline ]; then U_BOOT_PARAMETERS="$(cat etc/kernel/cmdline)"; fi
echo "append root=/dev/sda1 ${U_BOOT_PARAMETERS:-ro quiet}"`)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.root, "boot/extlinux/extlinux.conf"), []byte(out), 0o644)
}

// lines are how boot loaders' files give a kernel its command line.
var lines = regexp.MustCompile(`(?m)^\s*(?:linux /vmlinuz|options|append|set linux_append=) ?(.*)$`)

// commandLine returns the kernel's command line from the node's boot loader.
func (s *tools) commandLine(t *testing.T) string {
	t.Helper()
	for _, pattern := range []string{"boot/loader/entries/*.conf", "boot/efi/loader/entries/*.conf", "boot/grub*/grub.cfg", "boot/extlinux/extlinux.conf", "oem/grub.cfg"} {
		files, err := filepath.Glob(filepath.Join(s.root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if found := lines.FindAllStringSubmatch(string(data), -1); found != nil {
				return strings.NewReplacer(`"`, "", "$linux_append ", "").Replace(found[len(found)-1][1])
			}
		}
	}
	t.Fatal("the boot loader has no command line")
	return ""
}
