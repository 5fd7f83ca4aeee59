package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A remote's URL may have a token, and errors go to logs.
func TestErrorsDoNotShowTheRemotesToken(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "show.krew.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := request{from: dir, version: "1.2.3", remote: "https://user:secret@127.0.0.1:1/index"}
	err := r.publishKrew(t.Context(), io.Discard)
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "https://127.0.0.1:1/index") {
		t.Errorf("the error is %v", err)
	}
}

func TestRemotesThatAreNoURLStay(t *testing.T) {
	for _, remote := range []string{"/srv/index.git", "git@example.org:index", "https://example.org/index"} {
		if got := redacted(remote); got != remote {
			t.Errorf("%s is shown as %s", remote, got)
		}
	}
}
