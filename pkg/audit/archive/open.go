package archive

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Limits of an archive. They are far above the size for a node with 4,096 functions, and low enough that a malicious archive does
// no harm. It is unpacked in the directory for temporary files.
const (
	maxArchive  = 256 << 20    // bytes of the file
	maxTotal    = 512 << 20    // bytes unpacked
	maxStream   = 2 * maxTotal // bytes unpacked, with names and owners
	maxFile     = 64 << 20     // bytes of one file
	maxManifest = 64 << 20
	maxEntries  = 1 << 19 // files, links and directories: 128 of each of 4,096 functions
	maxPath     = 1024
	maxDepth    = 64
	// bytesOfDir is the share of a directory in maxTotal: a block of the file system. The archive itself needs no bytes for the
	// directories above a file, so without this share a few kilobytes could create hundreds of thousands of directories.
	bytesOfDir = 4 << 10
)

// Tree is an opened archive.
type Tree struct {
	FS       *sysfs.FS
	Manifest *Manifest

	dir string
}

// Is reports whether name is meant to be an archive: it is a regular file. The root of a node never is one.
func Is(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// Open unpacks an archive into a private temporary directory and returns it as the node's file system; Close
// removes it. Nothing in the archive is trusted: its size, and the number, names and sizes of its files are
// limited. No file is outside of the directory, links out of it, is a device or executable, or belongs to another
// user.
func Open(name string) (*Tree, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open archive: %w", err)
	}
	defer func() { _ = file.Close() }()
	return Read(file, name)
}

// Read is [Open] for the content of r; name is for messages.
func Read(r io.Reader, name string) (*Tree, error) {
	dir, err := os.MkdirTemp("", "kata-vfio-audit-")
	if err != nil {
		return nil, fmt.Errorf("unpack archive %s: %w", name, err)
	}
	t, err := unpack(r, dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("unpack archive %s: %w", name, err), os.RemoveAll(dir))
	}
	return t, nil
}

// Close removes the unpacked files.
func (t *Tree) Close() error { return errors.Join(t.FS.Close(), os.RemoveAll(t.dir)) }

func unpack(r io.Reader, dir string) (*Tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	u := &unpacker{root: root, dir: root, dirName: "."}
	defer func() { u.leave() }()
	// The file and its content have separate limits, because gzip can pack 1,000 bytes into one.
	compressed, err := gzip.NewReader(io.LimitReader(r, maxArchive))
	if err != nil {
		return nil, fmt.Errorf("it is not an archive of `kata-vfio-audit collect`, which is a gzip file: %w", err)
	}
	u.tar = tar.NewReader(io.LimitReader(compressed, maxStream))
	if err := u.readManifest(); err != nil {
		return nil, err
	}
	if err := u.readFiles(); err != nil {
		return nil, err
	}
	// Only gzip's checksum may follow the last file.
	if _, err := io.Copy(io.Discard, io.LimitReader(compressed, maxStream)); err != nil {
		return nil, fmt.Errorf("read its end: %w", err)
	}
	fsys, err := sysfs.Open(dir)
	if err != nil {
		return nil, err
	}
	return &Tree{FS: fsys.WithCopy(u.answers), Manifest: u.manifest, dir: dir}, nil
}

// unpacker is the unpacking of one archive.
type unpacker struct {
	root     *os.Root
	tar      *tar.Reader
	manifest *Manifest
	answers  *answers
	known    map[string]bool
	made     map[string]bool // directories
	contents
	// dir is the directory of the last file, dirName below root: the files of a directory follow each other, and opening the path from
	// the root for each would take most of the time.
	dir     *os.Root
	dirName string
}

// enter returns the directory with that name, which must exist.
func (u *unpacker) enter(name string) (*os.Root, error) {
	if name == u.dirName {
		return u.dir, nil
	}
	dir, err := u.root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	u.leave()
	u.dir, u.dirName = dir, name
	return dir, nil
}

// leave closes the directory of the last file.
func (u *unpacker) leave() {
	if u.dir != u.root {
		_ = u.dir.Close() // it is a handle, nothing was written to it
	}
	u.dir, u.dirName = u.root, "."
}

// readManifest reads the manifest, which comes first.
func (u *unpacker) readManifest() error {
	h, err := u.tar.Next()
	if err != nil {
		return fmt.Errorf("read its first file: %w", err)
	}
	if h.Name != ManifestName || h.Size > maxManifest {
		return fmt.Errorf("its first file is %.64q with %d bytes, not a %s: it is not an archive of `kata-vfio-audit collect`", h.Name, h.Size, ManifestName)
	}
	u.manifest = &Manifest{}
	if err := json.NewDecoder(io.LimitReader(u.tar, maxManifest)).Decode(u.manifest); err != nil {
		return fmt.Errorf("read its %s: %w", ManifestName, err)
	}
	if u.manifest.Format != Format {
		return fmt.Errorf("it has format %d, and this version reads %d", u.manifest.Format, Format)
	}
	if u.answers, err = newAnswers(u.manifest); err != nil {
		return err
	}
	u.known, u.made = map[string]bool{}, map[string]bool{".": true}
	for _, name := range u.manifest.Known {
		u.known[name] = true
	}
	return nil
}

func (u *unpacker) readFiles() error {
	for {
		h, err := u.tar.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = u.readFile(h)
		}
		if err != nil {
			return err
		}
	}
}

// readFile unpacks one file. Devices and other special files become empty files.
func (u *unpacker) readFile(h *tar.Header) error {
	name, ok := strings.CutPrefix(strings.TrimSuffix(h.Name, "/"), treeName+"/")
	if !ok || !inside(name) {
		return fmt.Errorf("file %.128q has no name of a file of the node", h.Name)
	}
	if err := u.directory(path.Dir(name)); err != nil {
		return err
	}
	u.answers.add(name)
	switch h.Typeflag {
	case tar.TypeDir:
		if err := u.count(name, 0); err != nil { // a directory that is named again counts again
			return err
		}
		return u.directory(name)
	case tar.TypeSymlink:
		if err := u.count(name, 0); err != nil {
			return err
		}
		if len(h.Linkname) > maxPath {
			return fmt.Errorf("link %.128q leads to a path that is too long", h.Name)
		}
		u.answers.links[name] = h.Linkname
		// It may lead anywhere: the copy is read through os.Root, which does not leave the directory.
		return u.root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		u.answers.content[name] = !u.known[name]
		return u.content(name, h.Size)
	}
	return u.content(name, 0)
}

// directory makes a directory and those above it.
func (u *unpacker) directory(name string) error {
	if u.made[name] {
		return nil
	}
	for at := name; at != "."; at = path.Dir(at) {
		if _, link := u.answers.links[at]; link {
			return fmt.Errorf("file %.128q is below the link %.128q", name, at)
		}
		if u.made[at] {
			continue
		}
		u.made[at] = true
		if err := u.count(at, bytesOfDir); err != nil {
			return err
		}
	}
	return u.root.MkdirAll(name, 0o700)
}

// content unpacks a regular file, which must be new.
func (u *unpacker) content(name string, size int64) error {
	if err := u.countFile(name, size); err != nil {
		return err
	}
	dir, err := u.enter(path.Dir(name))
	if err != nil {
		return err
	}
	// O_EXCL refuses a second file with the name, and does not follow a link that the archive put there.
	file, err := dir.OpenFile(path.Base(name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, io.LimitReader(u.tar, size))
	return errors.Join(err, file.Close())
}
