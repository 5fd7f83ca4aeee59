package blueprint

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// Wanted reports whether anything is asked for.
func (v Version) Wanted() bool { return v.Exact != "" || v.Minimum != "" }

// Admits reports whether a version is as asked for. Exact takes the version with or
// without a leading "v"; of a minimum the numbers count, up to the first character
// that is neither a digit nor a dot: "6.12.9-amd64" is 6.12.9.
func (v Version) Admits(have string) bool {
	if v.Exact != "" {
		return strings.TrimPrefix(have, "v") == strings.TrimPrefix(v.Exact, "v")
	}
	return slices.CompareFunc(numbers(have), numbers(v.Minimum), cmp.Compare[int]) >= 0
}

// String returns the wish in words.
func (v Version) String() string {
	if v.Exact != "" {
		return v.Exact
	}
	return v.Minimum + " or newer"
}

// numbers returns the numbers that a version begins with.
func numbers(version string) []int {
	version = strings.TrimPrefix(version, "v")
	if end := strings.IndexFunc(version, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); end >= 0 {
		version = version[:end]
	}
	var all []int
	for part := range strings.SplitSeq(strings.Trim(version, "."), ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return all
		}
		all = append(all, n)
	}
	return all
}

func asInvalid(err error) (*v1alpha1.InvalidError, bool) {
	return errors.AsType[*v1alpha1.InvalidError](err)
}
