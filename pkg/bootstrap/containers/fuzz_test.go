package containers_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
)

// ReadAtMost and ReadDir make files a tree without a disk below it.
func (f files) ReadAtMost(name string, limit int64) ([]byte, error) {
	text, ok := f[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	return []byte(text)[:min(int64(len(text)), limit)], nil
}

func (f files) ReadDir(dir string) ([]string, error) {
	var names []string
	for name := range f {
		if rest, ok := strings.CutPrefix(name, dir+"/"); ok {
			first, _, _ := strings.Cut(rest, "/")
			names = append(names, first)
		}
	}
	if names == nil {
		return nil, fmt.Errorf("%s: %w", dir, fs.ErrNotExist)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Whatever a node's configuration and a neighbor of ours say: there is a problem with
// a path and a fix and no file of containerd's, or what is wanted is TOML, keeps the
// text, and is wanted again when it is there.
func FuzzContainerd(f *testing.F) {
	for _, s := range shapes() {
		for _, version := range []string{"2", "3", "4"} {
			text := strings.NewReplacer("VERSION", "version = "+version, "SECTION", section(int(version[0]-'0'))).Replace(s.text)
			for _, containerd := range []string{"", "1.7.28", "2.2.0"} {
				f.Add(text, "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.kata-gpu]\nx = 1\n", containerd)
				f.Add(text, "version = 3\n", containerd)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text, neighbor, containerd string) {
		of := kata().and(files{main: text, "etc/containerd/conf.d/site.toml": neighbor}).and(containerdPackage(containerd))
		w, err := containers.Wanted(of, blueprint.Containers{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range w.Problems {
			if p.Text == "" || p.Fix == "" || p.Code == "" {
				t.Errorf("the problem %+v says too little", p)
			}
		}
		if len(fatal(w)) > 0 {
			if content(w, main)+content(w, dropIn) != "" {
				t.Error("it wants files all the same")
			}
			return
		}
		then := of
		for _, file := range w.Files {
			then = then.and(files{file.Path: string(file.Content)})
			if strings.HasSuffix(file.Path, ".toml") && toml.Unmarshal(file.Content, &map[string]any{}) != nil {
				t.Errorf("%s is no TOML:\n%s", file.Path, file.Content)
			}
		}
		again, err := containers.Wanted(then, blueprint.Containers{})
		if err != nil || len(fatal(again)) > 0 || len(again.Files) != len(w.Files) {
			t.Fatalf("applied, it has the problems %+v, error %v", again.Problems, err)
		}
		for i, file := range again.Files {
			if !bytes.Equal(file.Content, w.Files[i].Content) {
				t.Errorf("%s is wanted anew:\n%s\nand was:\n%s", file.Path, file.Content, w.Files[i].Content)
			}
		}
	})
}
