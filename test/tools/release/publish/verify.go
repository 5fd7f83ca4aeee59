package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// verify compares all files of a release with its SHA256SUMS. A file that is not in it is not of the release.
func verify(dir string) error {
	sums, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		return fmt.Errorf("read the checksums of the release: %w", err)
	}
	want := map[string]string{"SHA256SUMS": ""}
	for lines := bufio.NewScanner(bytes.NewReader(sums)); lines.Scan(); {
		sum, name, ok := strings.Cut(lines.Text(), "  ")
		if !ok || name != filepath.Base(name) {
			return fmt.Errorf("SHA256SUMS has the line %q", lines.Text())
		}
		want[name] = sum
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("read what SHA256SUMS names: %w", err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(content)); got != sum {
			return fmt.Errorf("%s has the checksum %s, but SHA256SUMS says %s: make the release again", name, got, sum)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if _, ok := want[entry.Name()]; !ok {
			return fmt.Errorf("%s is not in SHA256SUMS: make the release again", entry.Name())
		}
	}
	return nil
}
