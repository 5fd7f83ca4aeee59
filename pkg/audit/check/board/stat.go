package board

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
)

// Own says who owns a file of the node and who may do what with it, as collected
// trees do: in [facts.StatFile], which tests need since they don't all run as root.
// The file itself need not be there. Directories above that nobody spoke of become
// root's.
func (t *Tree) Own(name, mode string, uid, gid uint32) {
	t.TB.Helper()
	all := map[string]facts.Stat{}
	text, err := os.ReadFile(t.Path(facts.StatFile))
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.TB.Fatal(err)
	}
	name = "/" + strings.TrimPrefix(name, "/")
	all[name] = facts.Stat{Mode: mode, UID: uid, GID: gid}
	for dir := path.Dir(name); dir != "/"; dir = path.Dir(dir) {
		if _, ok := all[dir]; !ok {
			all[dir] = facts.Stat{Mode: "40755"}
		}
	}
	text, err = json.MarshalIndent(all, "", " ")
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put(facts.StatFile, string(text))
}
