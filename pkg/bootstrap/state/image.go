package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"maps"
	"syscall"
	"time"
)

// MaxImage is the maximum size in bytes of a file that is read.
const MaxImage = 4 << 20

// Kind is the kind of file at a path.
type Kind string

// Kinds. Other is a directory, a device or the like.
const (
	Absent      Kind = "absent"
	RegularFile Kind = "file"
	Link        Kind = "link"
	Other       Kind = "other"
)

// Image describes the file at a path, without its content.
type Image struct {
	Kind Kind `json:"kind"`
	// Sum is the content's SHA-256 in hexadecimal.
	Sum    string `json:"sum,omitempty"`
	Target string `json:"target,omitempty"`
	// Mode, owner and extended attributes of a file.
	Mode   fs.FileMode       `json:"mode,omitempty"`
	UID    int               `json:"uid,omitempty"`
	GID    int               `json:"gid,omitempty"`
	XAttrs map[string][]byte `json:"xattrs,omitempty"`
}

// NewImage returns the image of a new file, which belongs to the user who creates it.
func NewImage(mode fs.FileMode) Image { return Image{Kind: RegularFile, Mode: mode, UID: -1, GID: -1} }

// Same reports whether two images have the same kind, content and target. It ignores mode, owner and extended attributes.
func (i Image) Same(o Image) bool {
	return i.Kind == o.Kind && i.Sum == o.Sum && i.Target == o.Target
}

// Identical reports whether two images agree in everything.
func (i Image) Identical(o Image) bool {
	return i.Same(o) && i.Mode == o.Mode && i.UID == o.UID && i.GID == o.GID && maps.EqualFunc(i.XAttrs, o.XAttrs, bytes.Equal)
}

// Sum returns the checksum of a content, as in [Image.Sum].
func Sum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// Owner returns the owner of a file.
func Owner(info fs.FileInfo) (uid, gid int) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(s.Uid), int(s.Gid)
	}
	return 0, 0
}

// Found is the file at a path, with its content.
type Found struct {
	Image
	Content []byte
	ModTime time.Time
}
