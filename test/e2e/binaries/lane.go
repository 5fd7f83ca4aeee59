package binaries

import (
	"fmt"
	"os"
	"path/filepath"
)

// LaneVariable names the environment variable that chooses between the versions that modules pin: newest, which is the default, or older.
const LaneVariable = "KATA_VFIO_LANE"

// lane is a choice of versions. A module has pins for each lane that it takes part in, and those of newest for the others.
type lane string

const (
	// newest is what go.mod pins.
	newest lane = "newest"
	// older is what older.mod pins: the oldest Kubernetes that we support, and containerd's long-term release.
	older lane = "older"
)

func laneOf(name string) (lane, error) {
	switch l := lane(name); l {
	case "":
		return newest, nil
	case newest, older:
		return l, nil
	}
	return "", fmt.Errorf("$%s is %q: set it to %s or %s", LaneVariable, name, newest, older)
}

// Older reports whether the environment chooses the older versions. [Ensure] refuses a value that names no lane.
func Older() bool { return lane(os.Getenv(LaneVariable)) == older }

// of is the lane that a module in a directory has.
func (l lane) of(dir string) lane {
	if _, err := os.Stat(filepath.Join(dir, string(older)+".mod")); l == older && err == nil {
		return older
	}
	return newest
}

// pins are the names of the files that pin the versions of a recipe's dependencies.
func (r recipe) pins() []string {
	if r.lane == older {
		return []string{"older.mod", "older.sum"}
	}
	return []string{"go.mod", "go.sum"}
}

// mod are the go command's flags that choose and keep the pins.
func (r recipe) mod() []string {
	flags := []string{"-mod=readonly"}
	if r.lane == older {
		flags = append(flags, "-modfile="+r.pins()[0])
	}
	return flags
}
