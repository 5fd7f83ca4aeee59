package fleet

import (
	"slices"
	"strconv"
	"strings"
)

// Profile names a profile, by which the platforms of a Kubernetes version are certified.
type Profile struct {
	// Version is the Kubernetes version of the profile: "v1.37".
	Version string `json:"version"`
	// Source is the profile's text, and Date its last change.
	Source string `json:"source"`
	Date   string `json:"date"`
}

// Profiles returns the profiles that the package knows, the newest first.
func Profiles() []Profile {
	return []Profile{
		{"v1.37", "https://github.com/cncf/k8s-ai-conformance/blob/287b44f07bb56bc916f6e2191359d44408a65a84/docs/AIConformance-1.37.yaml", "2026-08-26"},
		{"v1.36", "https://github.com/cncf/k8s-ai-conformance/blob/b2c89690e77f705dd4aec8da7d33a3b5d9831d8e/docs/AIConformance-1.36.yaml", "2026-06-23"},
	}
}

// Versions returns the versions of the profiles, the newest first.
func Versions() []string {
	var all []string
	for _, p := range Profiles() {
		all = append(all, p.Version)
	}
	return all
}

// ProfileNamed returns the profile of a version, "v1.37" or "1.37", and false for an unknown one.
func ProfileNamed(version string) (Profile, bool) {
	i := slices.IndexFunc(Profiles(), func(p Profile) bool { return strings.TrimPrefix(p.Version, "v") == strings.TrimPrefix(version, "v") })
	if i < 0 {
		return Profile{}, false
	}
	return Profiles()[i], true
}

// ProfileFor returns the profile for a cluster by its API server's version, "v1.37.2": the newest that is not newer than the cluster. It
// returns the oldest for an older cluster, and the newest for a version that can't be parsed.
func ProfileFor(kubernetes string) Profile {
	all := Profiles()
	have, ok := parseMinor(kubernetes)
	if !ok {
		return all[0]
	}
	for _, p := range all {
		if of, _ := parseMinor(p.Version); of <= have {
			return p
		}
	}
	return all[len(all)-1]
}

// parseMinor returns the minor version of a Kubernetes version 1.
func parseMinor(version string) (int, bool) {
	rest, ok := strings.CutPrefix(strings.TrimPrefix(version, "v"), "1.")
	if !ok {
		return 0, false
	}
	minor, _, _ := strings.Cut(rest, ".")
	// Some vendors' API servers report a minor version such as "37+".
	n, err := strconv.Atoi(strings.TrimRight(minor, "+"))
	return n, err == nil
}

// has reports whether the profile has a requirement that exists since a version.
func (p *Profile) has(since string) bool {
	if since == "" {
		return true
	}
	from, _ := parseMinor(since)
	of, _ := parseMinor(p.Version)
	return from <= of
}
