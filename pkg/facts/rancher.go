package facts

import (
	"cmp"
	"path"
	"strings"

	"sigs.k8s.io/yaml"
)

// Rancher is the configuration of K3s or RKE2: their files, then the flags of their service, which override them.
type Rancher struct {
	// Files are the files that may set a value, whether they exist or not.
	Files []string
	// values has the values of each flag, in order; for a flag with one value, the last applies.
	values map[string][]string
}

// Rancher reads the configuration of K3s or RKE2. Sources: docs.k3s.io/installation/configuration (RKE2 has the same),
// k3s pkg/configfilearg and pkg/cli/cmds.
func (d *Distribution) Rancher(node Tree) *Rancher {
	unit := d.service(node)
	args, variable := unit.Args(), strings.ToUpper(d.Name)
	file, _ := Option(args, "--config", "-c")
	r := &Rancher{values: map[string][]string{}}
	r.Files = rancherFiles(node, cmp.Or(file, unit.environment[variable+"_CONFIG_FILE"], "/etc/rancher/"+strings.ToLower(d.Name)+"/config.yaml"))
	if dir := unit.environment[variable+"_DATA_DIR"]; dir != "" {
		r.values["data-dir"] = []string{dir}
	}
	// K3s inserts the file's values before its own arguments (pkg/configfilearg), and reads an environment variable only for a flag
	// that has no value yet. So flags override the file, and the file overrides the environment.
	for _, name := range r.Files {
		r.merge(node.Read(name).Value)
	}
	r.flags(args)
	r.Files = append(r.Files, unit.Files...)
	return r
}

// rancherFiles returns a file and its drop-ins.
func rancherFiles(node Tree, main string) []string {
	all, dir := []string{main}, main+".d"
	names, _ := node.Names(dir)
	for _, name := range names {
		if ext := path.Ext(name); ext == ".yaml" || ext == ".yml" {
			all = append(all, path.Join(dir, name))
		}
	}
	return all
}

// merge reads one more file, whose values replace those of earlier files or, with a plus behind the key, add to them.
func (r *Rancher) merge(text string) {
	var file map[string]any
	if len(text) >= MaxTableSize || yaml.Unmarshal([]byte(text), &file) != nil {
		return
	}
	for key, value := range file {
		if !strings.HasSuffix(key, "+") {
			r.values[key] = listStrings(value)
		}
	}
	// This comes after the plain keys, because a map has no order, and a key with a plus adds to the value of the plain key.
	for key, value := range file {
		if name, ok := strings.CutSuffix(key, "+"); ok {
			r.values[name] = append(r.values[name], listStrings(value)...)
		}
	}
}

// listStrings returns the strings of a list, or a single string.
func listStrings(value any) []string {
	if text, ok := value.(string); ok {
		return []string{text}
	}
	var all []string
	list, _ := value.([]any)
	for _, item := range list {
		if text, ok := item.(string); ok {
			all = append(all, text)
		}
	}
	return all
}

// flags adds the flags of the service.
func (r *Rancher) flags(args []string) {
	for i, arg := range args {
		flag, value, inOne := strings.Cut(arg, "=")
		if flag == "-d" {
			flag = "--data-dir"
		}
		name, ok := strings.CutPrefix(flag, "--")
		switch {
		case ok && inOne:
			r.values[name] = append(r.values[name], value)
		// Boolean flags are not known here, so the word after a boolean flag wrongly counts as its value. No caller asks for a boolean flag.
		case ok && i+1 < len(args):
			r.values[name] = append(r.values[name], args[i+1])
		}
	}
}

// List returns every value of a flag that can be repeated.
func (r *Rancher) List(flag string) []string { return r.values[flag] }

// Dir returns the absolute path in the last value of a flag, or the standard path.
func (r *Rancher) Dir(flag, standard string) string {
	values := r.values[flag]
	if len(values) == 0 || !path.IsAbs(values[len(values)-1]) {
		return standard
	}
	return path.Clean(values[len(values)-1])
}
