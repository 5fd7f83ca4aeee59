package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A nodeSource is something of a node that several programs read.
type nodeSource struct {
	name string
	// paths matches literals that name it.
	paths *regexp.Regexp
	// reader is the package that may name it, and so reads it or says to others where it is.
	reader string
	// others are packages that name it too, each with the reason.
	others map[string]string
}

// nodeSources returns the table.
func nodeSources() []nodeSource {
	const (
		refused = "names what tenants' pods must not mount; it reads nothing"
		double  = "is a double of a node in tests, which has the file"
		copied  = "says by pattern what a copy of a node has"
	)
	return []nodeSource{
		{
			name: "the boot loader's files and the running kernel's command line", reader: "pkg/sysfs/kernelargs",
			paths: regexp.MustCompile(`^/?(proc/cmdline|etc/default/(grub|u-boot|limine)|(etc|usr/lib)/kernel/cmdline|etc/cmdline\.d|etc/u-boot-menu|etc/update-extlinux|etc/tuned/|etc/cos/|` +
				`((boot|efi|boot/efi)/)?loader/entries|boot/(grub2?/|extlinux|limine|armbian|refind|firmware/cmdline|efi/EFI)|(usr/share/)?oem/grub)`),
			others: map[string]string{"pkg/sysfs/sysfstest": double},
		},
		{
			name: "modprobe's configuration", reader: "pkg/sysfs/kernelargs",
			paths: regexp.MustCompile(`(^|/)modprobe\.d(/|$)|^/?etc/initramfs-tools/modules`),
		},
		{
			name: "the kubelet's configuration", reader: "pkg/facts",
			paths: regexp.MustCompile(`^/?var/lib/kubelet(/|$)|^kubelet\.service$`),
			others: map[string]string{
				"pkg/audit/archive":    copied,
				"cmd/kata-vfio-plugin": "has the sockets and directories of plugins as defaults of flags; it reads no configuration",
				"pkg/audit/cluster":    refused, "pkg/audit/check": refused,
			},
		},
		{
			name: "containerd's and CRI-O's configuration and places", reader: "pkg/facts",
			paths: regexp.MustCompile(`^/?etc/(containerd|crio|k0s|rancher)(/|$)|^/?run/(containerd|k3s|k0s|crio)(/|$)|^/?var/lib/(rancher|k0s)(/|$)|^/?(var/)?snap/microk8s|^(containerd|k3s|k3s-agent|k0sworker|rke2-\w+)\.service$`),
			others: map[string]string{
				"pkg/audit/archive": copied, "pkg/audit/cluster": refused,
				"pkg/plugin/podres": "finds the bundle of one shim by the state directory of containerd, which a flag of the shim overrides",
			},
		},
		{
			name: "Kata's configuration", reader: "pkg/facts",
			paths:  regexp.MustCompile(`^/?(etc|usr/share/defaults|opt/kata/share/defaults)/kata-containers(/|$)`),
			others: map[string]string{"pkg/audit/archive": copied, "pkg/audit/cluster": refused},
		},
		{
			name: "Kata's state of sandboxes", reader: "pkg/facts/runtimes", paths: regexp.MustCompile(`^/?run/(vc/sbs|kata)(/|$)`),
			others: map[string]string{"pkg/audit/archive": "leaves out what annotations of pods say in a copy"},
		},
		{
			name: "processes", reader: "pkg/sysfs",
			paths: regexp.MustCompile(`^/?proc/?$|^/?proc/(%d|%s|1/(ns|net|fd|cmdline|status|comm|stat|maps)(/|$))`),
			others: map[string]string{
				"pkg/sysfs/sysfstest": double,
				"pkg/audit/archive":   "leaves out or masks what processes have in a copy",
				"pkg/network/podnet":  "enters the namespaces of pods by a root of proc of its own", "pkg/network/vf/link": "enters the network namespace of the node's first process",
				"pkg/inventory": "has the root of proc for the same", "pkg/node": "has the root of proc for the same",
				"pkg/plugin": "asks whether one process of a record runs", "pkg/plugin/nri": "asks when one process of a record started",
				"pkg/plugin/podres": "follows a shim through a root of proc of its own", "cmd/kata-vfio-bootstrap": "enters the mount namespace of the node's first process",
				"pkg/audit/cluster": refused,
			},
		},
		{
			name: "CDI's directories", reader: "pkg/cdi",
			paths: regexp.MustCompile(`^/?(etc|run|var/run)/cdi(/|$)`),
			others: map[string]string{
				"pkg/audit/archive": copied, "pkg/audit/cluster": refused,
				"pkg/plugin": "joins the directory of static specs to its root",
			},
		},
		{
			name: "the journal", reader: "pkg/journal", paths: regexp.MustCompile(`^/?var/lib/kata-vfio/journal(/|$)`),
		},
		{name: "the ledger", reader: "pkg/ledger", paths: regexp.MustCompile(`^/?var/lib/kata-vfio/ledger(/|$)`)},
	}
}

// TestOneReaderOfEachSource refuses a literal with the path of a source outside of the package that reads it: a second
// reader starts with one. Text for people, which has spaces, doesn't count.
func TestOneReaderOfEachSource(t *testing.T) {
	literals := pathLiterals(t)
	for _, source := range nodeSources() {
		named := map[string]bool{}
		for _, l := range literals {
			if !source.paths.MatchString(l.text) {
				continue
			}
			named[l.dir] = true
			if _, excepted := source.others[l.dir]; l.dir != source.reader && !excepted {
				t.Errorf("%s: %q is the path of %s, which %s reads: use its names and readers", l.place, l.text, source.name, source.reader)
			}
		}
		for _, dir := range slices.Sorted(maps.Keys(source.others)) {
			if !named[dir] {
				t.Errorf("%s does not name %s; drop it from nodeSources", dir, source.name)
			}
		}
		if !named[source.reader] {
			t.Errorf("%s does not name %s: the table is out of date", source.reader, source.name)
		}
	}
}

// literal is a string literal without spaces.
type literal struct{ dir, place, text string }

// pathLiterals returns the literals of the products' Go that may be paths, but those of imports and tags.
func pathLiterals(t *testing.T) []literal {
	t.Helper()
	var all []literal
	root, files := os.DirFS("../.."), token.NewFileSet()
	for _, top := range []string{"cmd", "pkg"} {
		err := fs.WalkDir(root, top, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			src, err := fs.ReadFile(root, name)
			if err != nil {
				return err
			}
			file, err := parser.ParseFile(files, name, src, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ImportSpec:
					return false
				case *ast.BasicLit:
					if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && !strings.ContainsAny(text, " \n") {
						all = append(all, literal{path.Dir(name), files.Position(n.Pos()).String(), text})
					}
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
