package podres

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// settledDirs are directories at rest for a while.
func settledDirs(t *testing.T) [2]string {
	t.Helper()
	dirs := [2]string{t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		setTime(t, dir, time.Now().Add(-time.Second))
	}
	return dirs
}

func setTime(t *testing.T, path string, at time.Time) {
	t.Helper()
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoriesAtRestAreTheSame(t *testing.T) {
	dirs := settledDirs(t)
	if first := readVersion(dirs); !readVersion(dirs).same(first) {
		t.Errorf("%+v and %+v differ", first, readVersion(dirs))
	}
}

func TestDirVersionChangesWithEachChange(t *testing.T) {
	for name, change := range map[string]func(dir, file string) error{
		"a file made":     func(dir, _ string) error { return os.WriteFile(filepath.Join(dir, "new"), nil, 0o600) },
		"a file removed":  func(_, file string) error { return os.Remove(file) },
		"a file replaced": func(dir, file string) error { return os.Rename(file, filepath.Join(dir, "other")) },
		"the directory removed": func(dir, _ string) error {
			return os.RemoveAll(dir)
		},
	} {
		for i := range 2 {
			dirs := settledDirs(t)
			file := filepath.Join(dirs[i], "file")
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			setTime(t, dirs[i], time.Now().Add(-time.Second))
			first := readVersion(dirs)
			if err := change(dirs[i], file); err != nil {
				t.Fatal(err)
			}
			if readVersion(dirs).same(first) {
				t.Errorf("%s in directory %d does not show", name, i)
			}
		}
	}
}

// A second change within the clock's tick has the time of the first.
func TestDirectoryThatJustChangedIsNotTrusted(t *testing.T) {
	dirs := settledDirs(t)
	setTime(t, dirs[1], time.Now())
	if first := readVersion(dirs); readVersion(dirs).same(first) {
		t.Errorf("%+v is trusted", first)
	}
}
