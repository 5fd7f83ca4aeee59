package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// The directories of CDI specs that runtimes read unless they are configured otherwise (CDI's SPEC.md: static
// specs, and those that are written at run time). Kata reads no others.
const (
	StaticDir  = "/etc/cdi"
	DynamicDir = "/var/run/cdi"
)

// DefaultDir is DynamicDir below the node's root. It is not /var/run, because that is a link to /run, and an absolute link would lead out
// of another root.
const DefaultDir = "run/cdi"

// Dirs returns the directories of specs. Later ones take precedence over earlier ones.
func Dirs() []string { return []string{StaticDir, DynamicDir} }

// Dir is the directory of CDI specs that the runtimes read. It changes only files of kata-vfio. Its methods may be called from several
// goroutines.
type Dir struct {
	path string

	mu   sync.Mutex // guards read
	read map[string]readSpec
}

// readSpec is a decoded file, with the file info that distinguishes it from its successors: a replaced file has another inode.
type readSpec struct {
	info fs.FileInfo
	spec *specs.Spec
}

// prefix begins the names of our files; the claim's UID follows.
const prefix = "kata-vfio.dev-vfio_"

// ParseFileName returns the UID of the claim whose spec has the file name; false for a file that is not ours.
func ParseFileName(name string) (uid string, ok bool) {
	uid, ours := strings.CutPrefix(name, prefix)
	uid, isSpec := strings.CutSuffix(uid, ".json")
	if !ours || !isSpec || uid == "" {
		return "", false
	}
	return uid, true
}

// Open returns the directory at path, which is made if it is missing.
func Open(path string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, fmt.Errorf("open CDI directory: %w", err)
	}
	return &Dir{path: path, read: map[string]readSpec{}}, nil
}

// Writable returns an error if no spec can be written now: the directory is missing, or its file system is read-only. It writes
// nothing, so that it may be asked often.
func (d *Dir) Writable() error {
	if err := unix.Access(d.path, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("the directory of CDI specs, %s, can't be written: %w; restart the plugin if the directory was removed", d.path, err)
	}
	return nil
}

// File returns the path of a claim's spec file.
func (d *Dir) File(claimUID string) string {
	return filepath.Join(d.path, prefix+claimUID+".json")
}

// Write puts the claim's spec in place atomically, over an older one. A reader sees the old file or the new one. The
// directory is not synced: a spec is of this boot, and the plugin removes or rewrites those that it finds at its start.
func (d *Dir) Write(claimUID string, spec *specs.Spec) error {
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return fmt.Errorf("encode CDI spec of claim %s: %w", claimUID, err)
	}
	// All may read it, whatever the plugin's umask. In the same directory, the temporary file is not looked for elsewhere.
	err = renameio.WriteFile(d.File(claimUID), append(data, '\n'), 0o644, renameio.WithTempDir(d.path), renameio.WithStaticPermissions(0o644))
	if err != nil {
		return fmt.Errorf("write CDI spec %s: %w", d.File(claimUID), err)
	}
	return nil
}

// Read returns the claim's spec; its error matches fs.ErrNotExist when there
// is none. A file that has not changed gives the same pointer again: don't
// change what it points to.
func (d *Dir) Read(claimUID string) (*specs.Spec, error) {
	info, err := os.Stat(d.File(claimUID))
	if err != nil {
		return nil, fmt.Errorf("read CDI spec: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	// Write replaces the file, so a new spec is another inode. If it is replaced between Stat and decode, the older info makes
	// the next call read again.
	if r, ok := d.read[claimUID]; ok && os.SameFile(r.info, info) && r.info.ModTime().Equal(info.ModTime()) {
		return r.spec, nil
	}
	spec, err := d.decode(claimUID)
	if err != nil {
		return nil, err
	}
	d.read[claimUID] = readSpec{info: info, spec: spec}
	return spec, nil
}

func (d *Dir) decode(claimUID string) (*specs.Spec, error) {
	data, err := os.ReadFile(d.File(claimUID))
	if err != nil {
		return nil, fmt.Errorf("read CDI spec: %w", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("read CDI spec %s: %w", d.File(claimUID), err)
	}
	return &spec, nil
}

// leftovers returns the paths of the temporary files that interrupted writes of a claim's spec left behind.
func (d *Dir) leftovers(claimUID string) ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+prefix+claimUID+".json") {
			paths = append(paths, filepath.Join(d.path, e.Name()))
		}
	}
	return paths, nil
}

// Remove removes the claim's spec, and the temporary files that interrupted writes left behind. A missing file is not an error. Like
// [Dir.Write], it does not sync the directory.
func (d *Dir) Remove(claimUID string) error {
	leftovers, err := d.leftovers(claimUID)
	if err != nil {
		return fmt.Errorf("remove CDI spec: %w", err)
	}
	d.mu.Lock()
	delete(d.read, claimUID)
	d.mu.Unlock()
	for _, path := range append(leftovers, d.File(claimUID)) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove CDI spec: %w", err)
		}
	}
	return nil
}

// Claims returns the sorted UIDs of the claims that have a spec file, or a temporary file that an interrupted write left behind.
func (d *Dir) Claims() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("list CDI directory: %w", err)
	}
	var uids []string
	for _, e := range entries {
		name, leftover := strings.CutPrefix(e.Name(), ".")
		uid, ours := strings.CutPrefix(name, prefix)
		uid, rest, spec := strings.Cut(uid, ".json")
		if ours && spec && (leftover || rest == "") {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}
