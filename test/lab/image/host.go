package image

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/internal/apt"
)

// need is a file that a build uses on the host and the Debian or Ubuntu package that has it.
type need struct {
	path, pkg string
}

func needs() []need {
	return []need{
		{"/usr/sbin/debootstrap", "debootstrap"},
		{keyring, "debian-archive-keyring"},
		{"/sbin/mkfs.ext4", "e2fsprogs"},
	}
}

// keyring verifies the archive's signature; Ubuntu has the package, too.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// prepareHost installs the packages that are missing.
func (b *build) prepareHost(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return errors.New("the lab's image is built with debootstrap and chroot, which need root: run it with sudo")
	}
	var missing []string
	for _, n := range needs() {
		if _, err := os.Stat(n.path); err != nil {
			missing = append(missing, n.pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	b.progress.step("installing on this host: %s", strings.Join(missing, " "))
	return apt.Install(ctx, b.log, missing...)
}

// mirrors lists the archives to try: the one this host uses where it is Debian's, then debootstrap's default ("").
func (b *build) mirrors(ctx context.Context) []string {
	const format = "$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(REPO_URI)"
	out, err := b.run(ctx, "", nil, "apt-get", "indextargets", "--format", format, "Created-By: Packages")
	if err != nil {
		return []string{""} // no apt, no preference
	}
	for line := range strings.Lines(out) {
		uri, ok := strings.CutPrefix(strings.TrimSpace(line), "Debian|Debian|main|")
		if ok && (strings.HasPrefix(uri, "http://") || strings.HasPrefix(uri, "https://")) {
			return []string{uri, ""}
		}
	}
	return []string{""}
}
