package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// sumsFile is the name that people look for, in the form that `sha256sum -c` reads.
const sumsFile = "SHA256SUMS"

// checksums writes the checksums of all files of a directory, in the order of their names, and lists the files with their
// sizes.
func checksums(dir string, stdout io.Writer) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, entry := range entries {
		if entry.Name() == sumsFile {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), entry.Name())
		fmt.Fprintf(stdout, "%9.1f KiB  %s\n", float64(len(content))/1024, filepath.Join(dir, entry.Name()))
	}
	return renameio.WriteFile(filepath.Join(dir, sumsFile), sums.Bytes(), 0o644)
}
