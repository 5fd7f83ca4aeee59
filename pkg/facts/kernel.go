package facts

import (
	"regexp"
	"strconv"
	"strings"
)

// Kernel is a running kernel as /proc shows it.
type Kernel struct {
	// Release is /proc/sys/kernel/osrelease, Version is /proc/version, which may be empty.
	Release, Version string
}

// debianVersion is the package's version in Debian's /proc/version: "#1 SMP PREEMPT_DYNAMIC Debian 6.1.148-1 (2025-08-26)". The
// release of such a kernel can stay 6.1.0 for years.
var debianVersion = regexp.MustCompile(`\bDebian (\d+\.\d+\.\d+)-`)

// followers are the suffixes of kernels whose number is that of the release of kernel.org that they are built from, with
// few changes of their own: kernel.org's, Debian's since 6.12.27, Arch's, Fedora's, Flatcar's and Talos'.
var followers = regexp.MustCompile(`^(|\+deb\d+.*|-arch\d.*|-\d+\.fc\d+\..*|-flatcar|-talos)$`)

// number returns the release of kernel.org that the kernel is built from, or nil if it is unknown. follows is set if the kernel has
// the changes of that release, and hardly any others.
func (k Kernel) number() (number []int, follows bool) {
	// Up to Debian 12, the release string has the number of the ABI ("6.1.0-37-amd64"). Only the version string has the upstream release.
	if m := debianVersion.FindStringSubmatch(k.Version); m != nil {
		return KernelNumber(m[1]), true
	}
	base, _ := splitRelease(k.Release)
	return KernelNumber(k.Release), followers.MatchString(strings.TrimPrefix(k.Release, base))
}

// splitRelease returns the digits and dots that begin a release, and the rest.
func splitRelease(release string) (base, suffix string) {
	if end := strings.IndexAny(release, "-+~_"); end >= 0 { // "6.12.107+deb13-amd64"
		return release[:end], release[end:]
	}
	return release, ""
}

// KernelNumber returns the first three numbers of a release. A missing last number is zero. It returns nil for a release candidate,
// which may be older than the change that its number suggests.
func KernelNumber(release string) []int {
	base, suffix := splitRelease(release)
	parts := strings.Split(base, ".")
	if len(parts) < 2 || strings.HasPrefix(suffix, "-rc") || strings.HasPrefix(suffix, "-0.rc") {
		return nil
	}
	number := make([]int, 3)
	for i, part := range parts[:min(len(parts), 3)] {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		number[i] = n
	}
	return number
}
