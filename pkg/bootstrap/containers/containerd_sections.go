package containers

import (
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
)

// sections returns our drop-in in version 2, for a containerd that may be 1.x: there
// a section of a later file replaces the whole section of those before it, so ours
// repeats what they say. containerd 2 merges it and comes to the same. Timeouts merge key by
// key in both.
func sections(before, ours *config.Containerd) ([]byte, error) {
	runtime := ours.All.Sub("plugins", config.CRIRuntime).Clone()
	handler := runtime.Sub("containerd", "runtimes", handlerName)
	handler["sandbox_mode"] = handler["sandboxer"]
	delete(handler, "sandboxer")
	all := before.Written.Sub("plugins").Clone()
	all.Merge(config.Table{config.CRIBefore: runtime, config.NRI: ours.All.Sub("plugins", config.NRI).Clone()})
	plugins := config.Table{config.CRIBefore: all[config.CRIBefore], config.NRI: all[config.NRI]}
	text, err := toml.Marshal(map[string]any{"version": 2, "plugins": plugins.Plain(), "timeouts": ours.All.Sub("timeouts").Plain()})
	if err != nil {
		return nil, fmt.Errorf("write a drop-in of version 2: %w", err)
	}
	return append([]byte(sectionsHead(before)), text...), nil
}

func sectionsHead(before *config.Containerd) string {
	var names []string
	for _, file := range before.Files {
		if file.Value != "" {
			names = append(names, file.Path)
		}
	}
	return fmt.Sprintf(`# The handler %s, Kata's runtime for pods with devices. kata-vfio-bootstrap wrote this file.
#
# In containerd 1 a plugin's section here replaces that section of the files before: so it repeats what
# %s
# say, with our settings put in. Run kata-vfio-bootstrap apply again after a change of theirs: until then it does
# not count, and kata-vfio-bootstrap verify names it.

`, handlerName, strings.Join(names, ", "))
}
