package main

import "testing"

const changelog = `# Changelog

See [Keep a Changelog](https://keepachangelog.com).

## [Unreleased]

## [1.10.0] - 2026-07-02

Not this one.

## [1.1.0] - 2026-07-01

### Added

- A thing, see [the issue] and [more](here.md).

## [1.0.0]

[Unreleased]: https://example.org/main
[the issue]: https://example.org/7
[1.0.0]: https://example.org/v1.0.0
`

func TestNotesAreThoseOfTheVersion(t *testing.T) {
	want := "### Added\n\n- A thing, see [the issue] and [more](here.md).\n\n[the issue]: https://example.org/7\n"
	if got, err := notes(changelog, "1.1.0"); err != nil || got != want {
		t.Errorf("the notes are %q, %v", got, err)
	}
}

func TestNotesAreMissed(t *testing.T) {
	for _, version := range []string{"1.0.0", "1.1", "2.0.0", "1a1.0"} {
		if got, err := notes(changelog, version); err == nil {
			t.Errorf("the notes of %s are %q", version, got)
		}
	}
}
