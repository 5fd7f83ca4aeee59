package node

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

// Image is a container image of static programs, which the node has without pulling it. Beside them it may have dynamic programs, with
// all that these need.
type Image struct {
	// Name is the whole name with its tag, such as localhost/pause:1.
	Name string
	// Programs are static binaries on this host (see Compile) by their absolute paths in the image.
	Programs map[string]string
	// Dynamic are dynamic ones in the same form, and Libraries are files on this host that they load by name when they run.
	Dynamic   map[string]string
	Libraries []string
	// Entrypoint is what a container runs: the path of one of the programs, and its arguments.
	Entrypoint []string
}

// write makes the image's archive by the image command (test/tools/image), which refuses what is not an image.
func (i Image) write(ctx context.Context, command, archive string) error {
	args := []string{"-o", archive, "-name", i.Name}
	for _, word := range i.Entrypoint {
		args = append(args, "-entrypoint", word)
	}
	for _, path := range slices.Sorted(maps.Keys(i.Dynamic)) {
		args = append(args, "-dynamic", path+"="+i.Dynamic[path])
	}
	for _, file := range i.Libraries {
		args = append(args, "-library", file)
	}
	args = append(args, "--") // all else is programs
	for _, path := range slices.Sorted(maps.Keys(i.Programs)) {
		args = append(args, path+"="+i.Programs[path])
	}
	cmd := exec.CommandContext(ctx, command, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := process.Run(cmd); err != nil {
		return fmt.Errorf("make image %s: %w\n%s", i.Name, err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// nameByDigest gives an image one more name, as pulling it would, and prints its digest.
const nameByDigest = `set -e
images() { ` + Dir + `/bin/ctr --namespace k8s.io images "$@"; }
digest=$(images list name=="$0" | awk 'NR == 2 {print $3}')
images tag --force "$0" "$1@$digest" >/dev/null
images label "$1@$digest" io.cri-containerd.image=managed io.cri-containerd.pinned=pinned >/dev/null
echo "$digest"`

// NameByDigest gives an image of the node a repository's name with the image's digest, as one has that came from a registry, and
// returns it. Sanitizers are named like that.
func (n *Node) NameByDigest(ctx context.Context, image, repository string) (string, error) {
	out, err := n.Command(ctx, "sh", "-c", nameByDigest, image, repository).Output()
	digest := strings.TrimSpace(string(out))
	if err == nil && !strings.HasPrefix(digest, "sha256:") {
		err = fmt.Errorf("its digest is %q", digest)
	}
	if err != nil {
		return "", fmt.Errorf("name image %s by its digest: %w", image, err)
	}
	return repository + "@" + digest, nil
}
