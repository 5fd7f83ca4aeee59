package runtimes

import (
	"encoding/base64"
	"encoding/json"
	"path"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// directVolumes is the directory in which Kata records the block devices that storage drivers assigned directly to volumes. It has
// a directory for each volume, whose name is the base64 of the volume's path on the node (Kata 4.1: pkg/direct-volume/utils.go;
// kata-types mount.rs).
const directVolumes = "run/kata-containers/shared/direct-volumes"

// DirectVolume is a volume whose block device Kata plugs into the VM, instead of sharing a directory.
type DirectVolume struct {
	// Path is the volume's path on the node, which is the source of a container's mount.
	Path string
	// Number is the number of its block device: "253:7".
	Number string
}

// DirectVolumes returns the directly assigned volumes of the node, and what could not be read.
func DirectVolumes(n *facts.Node) (volumes []DirectVolume, unread []facts.Fact) {
	names, listed := n.List(directVolumes)
	if !listed.Known() {
		return nil, []facts.Fact{listed}
	}
	for _, name := range names {
		// The name is the volume's path, encoded (Add in Kata's src/runtime/pkg/direct-volume/utils.go).
		source, err := base64.URLEncoding.DecodeString(name)
		if err != nil {
			continue // not Kata's
		}
		file := n.Read(path.Join(directVolumes, name, "mountInfo.json"))
		var info struct {
			Device string `json:"device"`
		}
		switch number, ok := "", false; {
		case file.Status == facts.Absent: // the volume was removed after it was listed
		case !file.OK() || json.Unmarshal([]byte(file.Value), &info) != nil:
			file.Value = ""
			unread = append(unread, file)
		default:
			if number, ok = blockDevice(n, info.Device); ok {
				volumes = append(volumes, DirectVolume{Path: path.Clean(string(source)), Number: number})
			}
		}
	}
	return volumes, unread
}
