package facts

import (
	"fmt"
	"path"
)

// The directories of Kata's configurations: that of the site, that of distributions' packages, and that of Kata's own release archive.
const (
	KataSite     = "/etc/kata-containers"
	KataPackaged = "/usr/share/defaults/kata-containers"
	KataUnpacked = "/opt/kata/share/defaults/kata-containers"
)

const kataMain = "configuration.toml"

// KataRust is the subdirectory of the Rust runtime below each of these directories.
const KataRust = "runtime-rs"

// DefaultKata returns the configuration that a shim reads if its handler names none: the first file that exists in the shim's own
// list (katautils GetDefaultConfigFilePaths, kata-types DEFAULT_RUNTIME_CONFIGURATIONS), with the paths of Kata's own build and of
// distributions. If none exists, it returns the last path.
func DefaultKata(files FileReader, rust bool) string {
	name := ""
	for _, dir := range []string{KataSite, KataPackaged, KataUnpacked} {
		if rust {
			dir = path.Join(dir, KataRust)
		}
		if name = path.Join(dir, kataMain); files.Read(name).Status != Absent {
			return name
		}
	}
	return name
}

// Kata is the configuration that a shim of Kata loads from its files.
type Kata struct {
	All Table
	// Files are the base and the drop-ins that were read, in the order in which they apply. Damaged files could not be
	// read or parsed: the shim would not start with them.
	Files, Damaged []Fact
}

// LoadKata reads a base file and every file in config.d beside it, sorted by name and with any extension, as both runtimes do. The
// runtimes follow links of the base first, so config.d is beside the file that the link leads to.
func LoadKata(node Tree, base string) *Kata {
	k := &Kata{All: Table{}}
	k.add(node.Read(base))
	dir := path.Join("/", path.Dir(node.Real(base)), "config.d")
	names, listed := node.Names(dir)
	if !listed.Known() {
		k.Damaged = append(k.Damaged, listed)
	}
	if len(names) > MaxTableFiles {
		listed.Status, listed.Err = Broken, fmt.Sprintf("it has more than %d files", MaxTableFiles)
		k.Damaged, names = append(k.Damaged, listed), names[:MaxTableFiles]
	}
	for _, name := range names {
		k.add(node.Read(path.Join(dir, name)))
	}
	return k
}

// add overrides the settings of earlier files with those of one more file.
func (k *Kata) add(file Fact) {
	var one Table
	if file.OK() {
		var err error
		if one, err = ParseTable(file); err != nil {
			file.Status, file.Err = Broken, err.Error()
		}
	}
	if !file.OK() {
		k.Damaged = append(k.Damaged, file)
		return
	}
	k.Files = append(k.Files, file)
	k.All.Merge(one)
}
