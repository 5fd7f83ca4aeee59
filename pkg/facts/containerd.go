package facts

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Plugins of containerd whose sections of the configuration are read.
const (
	CRIRuntime = "io.containerd.cri.v1.runtime"
	// CRIBefore is the CRI plugin of config versions 1 and 2. Its settings apply if the section of the newer plugin does not have them
	// (plugins/cri/runtime configMigration).
	CRIBefore = "io.containerd.grpc.v1.cri"
	NRI       = "io.containerd.nri.v1.nri"
	// serverGRPC has the settings that were in the section grpc before config version 4 (docs/man/containerd-config.toml.5.md).
	serverGRPC = "io.containerd.server.v1.grpc"
)

// MaxTableFiles bounds how many files one configuration may import.
const MaxTableFiles = 256

// FileReader is where configuration is read from. Paths are as on the node.
type FileReader interface {
	// Read reads a file.
	Read(name string) Fact
	// Match returns the paths, without a leading slash, that match a pattern of
	// [path.Match], sorted, and whether these are all.
	Match(pattern string) (names []string, all bool)
}

// Containerd is the configuration that containerd 2 loads from its files.
type Containerd struct {
	// All has the plugins' sections by the names of config version 3.
	All Table
	// Version is the highest config version among the files.
	Version int64
	// Files are the files that were read, in the order in which they apply. Damaged files could not be read or
	// parsed: containerd would not start with them.
	Files, Damaged []Fact
}

// Socket returns the absolute path of the socket that containerd serves on; empty if no file sets it.
func (c *Containerd) Socket() string {
	for _, section := range []Table{c.All.Sub("plugins", serverGRPC), c.All.Sub("grpc")} {
		if socket := section.Setting("", "address").Text(); path.IsAbs(socket) {
			return path.Clean(socket)
		}
	}
	return ""
}

// LoadContainerd reads a file as containerd 2's LoadConfig does: breadth first through the imports, and each file overrides the
// files before it, table by table and key by key.
func LoadContainerd(files FileReader, name string) *Containerd {
	c := &Containerd{All: Table{}}
	loaded, pending := map[string]bool{}, []string{name}
	for len(pending) > 0 {
		name := pending[0]
		pending = pending[1:]
		// A file that imports one of those before it is not read again, as in containerd.
		if loaded[name] {
			continue
		}
		// containerd has no such limit. Here it bounds the work that a configuration can cause a reader that runs as root.
		if len(loaded) == MaxTableFiles {
			c.Damaged = append(c.Damaged, Fact{Path: name, How: "read"}.BrokenBy(fmt.Errorf("%s: more than %d files are imported", name, MaxTableFiles)))
			break
		}
		loaded[name] = true
		one, ok := c.load(files.Read(name))
		if !ok {
			continue
		}
		pending = append(pending, imports(files, name, one)...)
		c.Version = max(c.Version, one.Setting(name, "version").Number())
		c.merge(one)
	}
	return c
}

// load parses one file. A missing file counts as damaged.
func (c *Containerd) load(file Fact) (Table, bool) {
	if !file.OK() {
		c.Damaged = append(c.Damaged, file)
		return nil, false
	}
	t, err := ParseTable(file)
	if err != nil {
		c.Damaged = append(c.Damaged, file.BrokenBy(err))
		return nil, false
	}
	c.Files = append(c.Files, file)
	return t, true
}

// merge overrides the settings of earlier files with those of one more file. Lists at the top level are joined.
func (c *Containerd) merge(one Table) {
	for _, key := range []string{"disabled_plugins", "required_plugins"} {
		if l, ok := one[key].(leaf); ok {
			l.value = joined(c.All.Setting("", key).value, l.value)
			one[key] = l
		}
	}
	migrate(one)
	c.All.Merge(one)
}

// joined returns the list with the strings of more that it does not contain. If more is not a list, it returns more.
func joined(list, more any) any {
	have, _ := list.([]any)
	add, ok := more.([]any)
	if !ok {
		return more
	}
	all := slices.Clone(have)
	for _, item := range add {
		if text, ok := item.(string); ok && !slices.Contains(all, any(text)) {
			all = append(all, item)
		}
	}
	return all
}

// imports returns the files that a file imports, in order: relative paths are relative to its directory, and paths with a star are
// patterns (resolveImports).
func imports(files FileReader, name string, t Table) []string {
	var found []string
	for _, pattern := range t.Setting(name, "imports").List() {
		if !path.IsAbs(pattern) {
			pattern = path.Join(path.Dir(name), pattern)
		}
		if !strings.Contains(pattern, "*") {
			found = append(found, path.Clean(pattern))
			continue
		}
		matches, all := files.Match(pattern)
		for _, m := range matches {
			found = append(found, "/"+m)
		}
		if !all {
			found = append(found, pattern) // does not exist as a file, so the configuration counts as damaged
		}
	}
	return found
}

// migrate converts a file of an older config version to the plugin sections of the current one.
func migrate(t Table) {
	plugins := t.Sub("plugins")
	version := t.Setting("", "version").Number()
	if cri, ok := plugins["cri"].(Table); ok && version < 2 {
		plugins[CRIBefore] = cri // v1MigratePluginName
	}
	before, ok := plugins[CRIBefore].(Table)
	if !ok || version >= 4 {
		return
	}
	if _, ok := plugins[CRIRuntime].(Table); !ok {
		plugins[CRIRuntime] = Table{}
	}
	// The newer plugin's own settings win. The section containerd is merged below, key by key.
	fill(plugins.Sub(CRIRuntime), before, "containerd")
	into := plugins.Sub(CRIRuntime)
	if _, ok := into["containerd"].(Table); !ok {
		into["containerd"] = Table{}
	}
	fill(into.Sub("containerd"), before.Sub("containerd"))
	for _, name := range into.Sub("containerd", "runtimes").Names() {
		runtime := into.Sub("containerd", "runtimes", name)
		// containerd 1.7 has the setting by this name.
		if mode, ok := runtime["sandbox_mode"]; ok && runtime["sandboxer"] == nil {
			runtime["sandboxer"] = mode
		}
		delete(runtime, "sandbox_mode")
	}
}

// fill adds the missing keys to a table.
func fill(to, from Table, without ...string) {
	for key, value := range from {
		if _, has := to[key]; !has && !slices.Contains(without, key) {
			to[key] = value
		}
	}
}
