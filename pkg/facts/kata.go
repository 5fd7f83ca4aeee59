package facts

import (
	"fmt"
	"path"
)

// The directories of Kata's configurations: the site's, those of distributions' packages, and those of Kata's own
// archive.
const (
	KataSite     = "/etc/kata-containers"
	KataPackaged = "/usr/share/defaults/kata-containers"
	KataUnpacked = "/opt/kata/share/defaults/kata-containers"
)

const kataMain = "configuration.toml"

// KataRust is the directory of the Rust runtime below each of the others.
const KataRust = "runtime-rs"

// DefaultKata returns the configuration that a shim reads if its handler names none: the first that exists of the shim's
// own list (katautils GetDefaultConfigFilePaths, kata-types DEFAULT_RUNTIME_CONFIGURATIONS), with the places of Kata's
// own build and of distributions. If none exists it is the last one.
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

// Kata is what a shim of Kata makes of its files.
type Kata struct {
	All Table
	// Files are the base and the drop-ins that were read, in the order in which they apply. Damaged files could not be
	// read or parsed: the shim would not start with them.
	Files, Damaged []Fact
}

// LoadKata reads a base and every file in config.d beside it, by name and whatever its extension, as both runtimes do.
// They follow links of the base first: the drop-ins are beside the file that it leads to.
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

// add puts a file over those before it.
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
