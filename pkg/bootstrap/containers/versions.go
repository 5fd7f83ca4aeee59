package containers

import (
	"bytes"
	"debug/buildinfo"
	"runtime/debug"
	"strconv"
	"strings"
)

// Limits for reading a version.
const (
	maxStatus = 64 << 20
	maxBinary = 256 << 20
)

// version is the version of a program according to the node's files.
type version struct {
	// Text is the version as the file states it. It is empty, and Major and Minor are -1, if no file has it.
	Text         string
	Major, Minor int
	Source       string
}

// known reports whether a file has the version.
func (v version) known() bool { return v.Major >= 0 }

// older reports whether the version is known and older.
func (v version) older(major, minor int) bool {
	return v.known() && (v.Major < major || v.Major == major && v.Minor >= 0 && v.Minor < minor)
}

// String returns the version for display.
func (v version) String() string {
	if v.Text == "" {
		return "unknown"
	}
	return v.Text
}

// parseVersion parses versions of packages and builds: "v2.1.4", "1.7.28-0ubuntu1", "1:2.0.0~rc.1".
func parseVersion(text, source string) version {
	v := version{Text: text, Major: -1, Minor: -1, Source: source}
	// An epoch of Debian's package is not part of the version.
	if _, after, ok := strings.Cut(text, ":"); ok {
		text = after
	}
	numbers := strings.FieldsFunc(strings.TrimPrefix(text, "v"), func(c rune) bool { return c < '0' || c > '9' })
	if len(numbers) == 0 || !strings.HasPrefix(strings.TrimPrefix(text, "v"), numbers[0]) {
		return version{Major: -1, Minor: -1}
	}
	v.Major, _ = strconv.Atoi(numbers[0])
	if len(numbers) > 1 {
		v.Minor, _ = strconv.Atoi(numbers[1])
	}
	return v
}

// dpkgStatus is dpkg's list of installed packages.
const dpkgStatus = "/var/lib/dpkg/status"

// installed returns the version of the first of the Debian packages that is installed.
func (n node) installed(packages ...string) version {
	status := n.readAtMost(dpkgStatus, maxStatus).Value
	for _, name := range packages {
		_, rest, ok := strings.Cut("\n"+status, "\nPackage: "+name+"\n")
		if !ok {
			continue
		}
		entry, _, _ := strings.Cut(rest, "\n\n")
		_, text, ok := strings.Cut("\n"+entry, "\nVersion: ")
		// A package that was removed, but not purged, stays in the list with another status.
		if !ok || !strings.Contains("\n"+entry, "\nStatus: install ok installed\n") {
			continue
		}
		text, _, _ = strings.Cut(text, "\n")
		return parseVersion(text, dpkgStatus)
	}
	return version{Major: -1, Minor: -1}
}

// packagedBinary is containerd in Debian's packages.
const packagedBinary = "/usr/bin/containerd"

// containerdVersion returns the version of containerd: the package's if its binary is started, otherwise the one in the
// binary's build information. Without a program it is unknown.
func (n node) containerdVersion(program string, binaries ...string) version {
	if program == "" || n.target(program) == n.target(packagedBinary) {
		if v := n.installed("containerd.io", "containerd"); v.known() {
			return v
		}
	}
	if program != "" {
		binaries = []string{program} // the version of another binary does not count
	}
	for _, binary := range binaries {
		file := n.readAtMost(binary, maxBinary)
		if !file.OK() {
			continue
		}
		info, err := buildinfo.Read(bytes.NewReader([]byte(file.Value)))
		if err != nil {
			continue
		}
		if v := builtVersion(info, binary); v.known() {
			return v
		}
	}
	return version{Major: -1, Minor: -1}
}

// builtVersion returns the version of containerd from its module. If the build has no version, the module's path has
// the major version.
func builtVersion(info *debug.BuildInfo, source string) version {
	const module = "github.com/containerd/containerd"
	modules := append([]*debug.Module{&info.Main}, info.Deps...)
	for _, m := range modules {
		rest, ok := strings.CutPrefix(m.Path, module)
		if !ok || rest != "" && rest != "/v2" {
			continue
		}
		// A build from a checkout has the version (devel), or v0.0.0 with a date and a commit.
		if v := parseVersion(m.Version, source); v.known() && v.Major > 0 {
			return v
		}
		if rest == "/v2" {
			return version{Text: "2.x", Major: 2, Minor: -1, Source: source}
		}
		return version{Text: "1.x", Major: 1, Minor: -1, Source: source}
	}
	return version{Major: -1, Minor: -1}
}
