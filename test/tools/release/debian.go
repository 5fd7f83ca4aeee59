package main

import (
	"fmt"
	"strings"
	"time"
)

// maintainer is a package's, as Debian wants it: a name and a mail address.
const maintainer = "kata-vfio maintainers <kata-vfio@users.noreply.github.com>"

// debianVersion is the version with the package's own number. A tilde sorts before the release.
func debianVersion(src source) string { return strings.Replace(src.version, "-", "~", 1) + "-1" }

// overrides are what lintian finds and is meant. Its pattern for a file is in brackets.
const overrides = `# Go's programs are static.
kata-vfio: statically-linked-binary [usr/bin/*]
# It reads the versions of a node whose dpkg it cannot run, below another root.
kata-vfio: uses-dpkg-database-directly [usr/bin/kata-vfio-bootstrap]
# No bug of Debian asks for this package.
kata-vfio: initial-upload-closes-no-bugs *
# One script for Debian and RPM; it disables units only where systemd runs.
kata-vfio: maintainer-script-calls-systemctl [prerm:*]
`

// debianFiles are the files that Debian's policy wants of a package, beside its copyright.
func debianFiles(src source) ([]file, error) {
	changelog, err := compress(fmt.Appendf(nil, `%s (%s) unstable; urgency=medium

  * Version %s, whose changes are described in
    %s/blob/v%s/CHANGELOG.md

 -- %s  %s
`, packageName, debianVersion(src), src.version, repository, src.version, maintainer, src.time.UTC().Format(time.RFC1123Z)))
	return []file{
		{path: "/usr/share/doc/kata-vfio/changelog.Debian.gz", content: changelog},
		{path: "/usr/share/lintian/overrides/kata-vfio", content: []byte(overrides)},
	}, err
}
