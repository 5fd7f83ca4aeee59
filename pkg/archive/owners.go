package archive

import (
	"encoding/json"
	"fmt"
	"syscall"
)

// OwnersName is the file of a copy that says who owned the node's files: unpacked
// ones are somebody else's.
const OwnersName = "kata-vfio/stat.json"

// owner is what it says of one file: st_mode of stat(2) in octal, and the ids.
type owner struct {
	Mode string `json:"mode"`
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
}

// PutOwners adds [OwnersName] for the files that were asked for their owners,
// unless the node is itself a copy: one that has the file, or whose files have
// the owners of whoever made it.
func (r *Recorder) PutOwners() error {
	root, err := r.node.Lstat(".")
	if err != nil {
		return err
	}
	if sys, ok := root.Sys().(*syscall.Stat_t); !ok || sys.Uid != 0 {
		return nil
	}
	data, err := json.Marshal(r.owners())
	if err != nil {
		return fmt.Errorf("write down owners: %w", err)
	}
	r.Put(OwnersName, data)
	return nil
}

// owners returns those of the files that were asked for, by absolute path.
func (r *Recorder) owners() map[string]owner {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]owner{}
	for place, e := range r.entries {
		if e.info == nil {
			continue
		}
		if sys, ok := e.info.Sys().(*syscall.Stat_t); ok {
			all["/"+place] = owner{Mode: fmt.Sprintf("%o", sys.Mode), UID: sys.Uid, GID: sys.Gid}
		}
	}
	return all
}
