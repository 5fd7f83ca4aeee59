package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
)

// file is one of an archive or a package.
type file struct {
	path    string // absolute in a package, relative in an archive
	content []byte
	mode    int64
}

// archive is the name of a program's archive without its ending, and the directory in it.
func (p *program) archive(src source) string {
	return fmt.Sprintf("%s-%s-%s", p.name, src.version, p.platform())
}

// archiveFile is the name of a program's archive: Windows opens zip by itself.
func (p *program) archiveFile(src source) string {
	if p.os == "windows" {
		return p.archive(src) + ".zip"
	}
	return p.archive(src) + ".tar.gz"
}

// writeArchive writes the archive of one program.
func writeArchive(output string, src source, p *program, license []byte) error {
	root := p.archive(src)
	files := []file{
		{path: path.Join(root, p.file()), content: p.content, mode: 0o755},
		{path: path.Join(root, "LICENSE"), content: license, mode: 0o644},
		{path: path.Join(root, "THIRD-PARTY-LICENSES"), content: p.licenses, mode: 0o644},
		{path: path.Join(root, "man", p.manual.name()), content: p.manual.content, mode: 0o644},
	}
	for _, c := range p.completions {
		files = append(files, file{path: path.Join(root, "completions", c.name()), content: c.script, mode: c.mode()})
	}
	pack := tarball
	if p.os == "windows" {
		pack = zipped
	}
	content, err := pack(files, src.time)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(output, p.archiveFile(src)), content, 0o644)
}

// zipped is a zip archive of files of one time, in the order of their paths.
func zipped(files []file, at time.Time) ([]byte, error) {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: at.UTC()}
		h.SetMode(fs.FileMode(f.mode))
		to, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := to.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// tarball is a compressed archive of files that are root's and of one time, in the order of their paths.
func tarball(files []file, at time.Time) ([]byte, error) {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Size: int64(len(f.content)), Mode: f.mode, ModTime: at}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := compressed.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
