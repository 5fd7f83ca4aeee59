package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// krewSuffix is how the file of the kubectl plugin's manifest ends; before it is the plugin's name.
const krewSuffix = ".krew.yaml"

// publishKrew commits the manifest of the kubectl plugin to the remote's default branch, in the directory where krew looks.
func (r *request) publishKrew(ctx context.Context, stdout io.Writer) error {
	manifests, err := filepath.Glob(r.file("*" + krewSuffix))
	if err != nil {
		return err
	}
	if len(manifests) != 1 {
		return fmt.Errorf("%s has %d files *%s: want one", r.from, len(manifests), krewSuffix)
	}
	content, err := os.ReadFile(manifests[0])
	if err != nil {
		return err
	}
	name := strings.TrimSuffix(filepath.Base(manifests[0]), krewSuffix)
	clone, err := os.MkdirTemp("", "publish-krew-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(clone)
	commit, err := r.commit(ctx, repository(clone), "plugins/"+name+".yaml", content)
	if err != nil {
		return fmt.Errorf("commit the krew manifest to %s: %w", redacted(r.remote), err)
	}
	fmt.Fprintf(stdout, "krew plugins/%s.yaml@%s\n", name, commit)
	return nil
}

// redacted is a remote's URL without a password or token.
func redacted(remote string) string {
	u, err := url.Parse(remote)
	if err != nil || u.User == nil {
		return remote
	}
	u.User = nil
	return u.String()
}

// commit commits and pushes one file, if it differs from what is there, and returns the commit.
func (r *request) commit(ctx context.Context, clone repository, file string, content []byte) (string, error) {
	if _, err := clone.git(ctx, "clone", "--quiet", "--depth=1", "--", r.remote, "."); err != nil {
		return "", err
	}
	target := filepath.Join(string(clone), file)
	if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.WriteFile(target, content, 0o644)); err != nil { //nolint:gosec // git keeps only whether it runs
		return "", err
	}
	if _, err := clone.git(ctx, "add", "--", file); err != nil {
		return "", err
	}
	changed, err := clone.git(ctx, "status", "--porcelain")
	if err != nil {
		return "", err
	}
	if changed != "" {
		if _, err := clone.git(ctx, "commit", "--quiet", "-m", "kata-vfio "+r.version); err != nil {
			return "", err
		}
		if _, err := clone.git(ctx, "push", "--quiet", "origin", "HEAD"); err != nil {
			return "", err
		}
	}
	return clone.git(ctx, "rev-parse", "HEAD")
}

// repository is the directory of a clone.
type repository string

// git runs it in the clone, and never asks for a password. What it commits is the release's, whoever runs it.
func (d repository) git(ctx context.Context, args ...string) (string, error) {
	const author, email = "kata-vfio release", "kata-vfio@users.noreply.github.com"
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = string(d)
	cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_AUTHOR_NAME="+author, "GIT_AUTHOR_EMAIL="+email,
		"GIT_COMMITTER_NAME="+author, "GIT_COMMITTER_EMAIL="+email)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}
