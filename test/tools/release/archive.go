package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
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

// writeArchive writes the archive of one program.
func writeArchive(output string, src source, p *program, license []byte) error {
	root := fmt.Sprintf("%s-%s-linux-%s", p.name, src.version, p.arch)
	files := []file{
		{path: path.Join(root, p.name), content: p.content, mode: 0o755},
		{path: path.Join(root, "LICENSE"), content: license, mode: 0o644},
		{path: path.Join(root, "THIRD-PARTY-LICENSES"), content: p.licences, mode: 0o644},
		{path: path.Join(root, "man", p.manual.name()), content: p.manual.content, mode: 0o644},
	}
	for _, c := range p.completions {
		files = append(files, file{path: path.Join(root, "completions", c.name()), content: c.script, mode: c.mode()})
	}
	content, err := tarball(files, src.time)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(output, root+".tar.gz"), content, 0o644)
}

// tarball is a compressed archive of files that are root's and of one time, in the order of their paths.
func tarball(files []file, at time.Time) ([]byte, error) {
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
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
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
