package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// lastError reads runc's log as containerd's shim does: the message of the last error in it.
func lastError(t *testing.T, path string) string {
	t.Helper()
	var last string
	for decoder := json.NewDecoder(strings.NewReader(readText(t, path))); decoder.More(); {
		var line struct {
			Level, Msg string
			Time       time.Time
		}
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.Level == "error" {
			last = strings.TrimSpace(line.Msg)
		}
		if age := time.Since(line.Time); line.Time.IsZero() || age < -time.Minute {
			t.Errorf("a line of %s", line.Time)
		}
	}
	return last
}

// reported runs report and returns what it wrote to the standard error.
func reported(t *testing.T, c call, failed error) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	usual := os.Stderr
	os.Stderr = f
	defer func() { os.Stderr = usual }()
	c.report(failed)
	return readText(t, f.Name())
}

func TestErrorIsToldAsRuncTellsIt(t *testing.T) {
	failed := errors.New("port is not set for \"device\"\nand more")
	log := filepath.Join(t.TempDir(), "log.json")
	earlier := `{"level":"error","msg":"earlier","time":"2026-01-02T03:04:05Z"}` + "\n"
	if err := os.WriteFile(log, []byte(earlier), 0o600); err != nil {
		t.Fatal(err)
	}
	said := reported(t, call{log: log}, failed)
	want := "runcvm: " + failed.Error()
	if got := lastError(t, log); got != want {
		t.Errorf("containerd reads %q; want %q", got, want)
	}
	if text := readText(t, log); !strings.HasPrefix(text, earlier) || strings.Count(text, "\n") != 2 {
		t.Errorf("the log is not one line longer:\n%s", text)
	}
	if said != want+"\n" {
		t.Errorf("the standard error has %q; want %q", said, want)
	}
}

func TestLogIsMadeIfThereIsNone(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log.json")
	reported(t, call{log: log}, errors.New("bad"))
	if got := lastError(t, log); got != "runcvm: bad" {
		t.Errorf("containerd reads %q", got)
	}
}

func TestErrorIsToldWithoutALog(t *testing.T) {
	if got := reported(t, call{}, errors.New("bad")); got != "runcvm: bad\n" {
		t.Errorf("the standard error has %q", got)
	}
	log := filepath.Join(t.TempDir(), "none", "log.json")
	if got := reported(t, call{log: log}, errors.New("bad")); !strings.HasPrefix(got, "runcvm: bad\nruncvm: write the log: ") {
		t.Errorf("with a log that can't be written, the standard error has %q", got)
	}
}
