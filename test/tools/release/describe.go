package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// page is a manual page.
type page struct {
	program string
	section int
	content []byte
}

func (p *page) name() string { return fmt.Sprintf("%s.%d", p.program, p.section) }

// completion is what makes a shell, or kubectl, complete a program's command lines.
type completion struct {
	program, shell string // without a shell it is kubectl's
	script         []byte
}

// name is that of the file, by which the shell finds it.
func (c *completion) name() string {
	switch c.shell {
	case "zsh":
		return "_" + c.program
	case "fish":
		return c.program + ".fish"
	case "":
		return "kubectl_complete-" + strings.TrimPrefix(c.program, "kubectl-")
	}
	return c.program
}

// mode: kubectl runs its own, shells read theirs.
func (c *completion) mode() int64 {
	if c.shell == "" {
		return 0o755
	}
	return 0o644
}

// describe adds to the programs the manual pages, completions and licenses that come with them. It runs the programs for this
// host's processor and takes these from their answers. So nothing has to be kept in step with the commands, which no other
// module can import, and the programs have nothing for it in them. A new program needs no entry anywhere.
func describe(ctx context.Context, programs []program, src source, cache *moduleCache) error {
	dir, err := os.MkdirTemp("", "release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for i := range programs {
		p := &programs[i]
		if p.licenses, err = cache.licenses(p.build); err != nil {
			return fmt.Errorf("the licenses of %s: %w", p.name, err)
		}
		if p.os != runtime.GOOS || p.arch != runtime.GOARCH {
			continue
		}
		if err := p.describe(ctx, dir, src); err != nil {
			return fmt.Errorf("ask %s: %w", p.name, err)
		}
	}
	for i := range programs {
		if err := programs[i].takeDescription(programs); err != nil {
			return err
		}
	}
	return nil
}

// describe asks the program, which it writes to dir and runs there.
func (p *program) describe(ctx context.Context, dir string, src source) error {
	file := filepath.Join(dir, p.name)
	if err := os.WriteFile(file, p.content, 0o700); err != nil {
		return err
	}
	said, err := readHelp(ctx, file)
	if err != nil {
		return err
	}
	p.manual = manual(p, said, src)
	shells := []string{"bash", "zsh", "fish"}
	if p.isKubectlPlugin() {
		shells = []string{""}
	}
	for _, shell := range shells {
		script, err := output(ctx, file, strings.Fields("completion "+shell)...)
		if err != nil {
			return err
		}
		p.completions = append(p.completions, completion{program: p.name, shell: shell, script: script})
	}
	return nil
}

// takeDescription has the program for another processor described like that for this host's.
func (p *program) takeDescription(programs []program) error {
	for i := range programs {
		if other := &programs[i]; other.name == p.name && other.completions != nil {
			p.manual, p.completions = other.manual, other.completions
			return nil
		}
	}
	return fmt.Errorf("%s is not there for %s: this host can't ask it for its help", p.name, runtime.GOARCH)
}

// output is what a program says, whose environment is empty: defaults come from there.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %q: %w: %s", args, err, &stderr)
	}
	return out, nil
}
