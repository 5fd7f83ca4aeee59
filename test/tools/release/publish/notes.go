package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// notes is what a changelog says about a version, from its heading to the next: "## [1.2.3] - 2026-07-01", as
// https://keepachangelog.com has it. References to links that are defined at the end are kept, with their definitions.
func notes(changelog, version string) (string, error) {
	heading := regexp.MustCompile(`(?m)^## \[` + regexp.QuoteMeta(version) + `\]( - \d{4}-\d{2}-\d{2})?$`)
	at := heading.FindStringIndex(changelog)
	if at == nil {
		return "", fmt.Errorf("it has no heading %q: describe the version there first", "## ["+version+"]")
	}
	definition := regexp.MustCompile(`(?m)^\[([^\]]+)\]: \S+$`)
	definitions := definition.FindAllStringSubmatch(changelog, -1)
	text := changelog[at[1]:]
	if next := regexp.MustCompile(`(?m)^## `).FindStringIndex(text); next != nil {
		text = text[:next[0]]
	}
	text = strings.TrimSpace(definition.ReplaceAllString(text, ""))
	if text == "" {
		return "", errors.New("it says nothing about version " + version)
	}
	text += "\n"
	gap := "\n"
	for _, d := range definitions {
		if strings.Contains(text, "["+d[1]+"]") {
			text, gap = text+gap+d[0]+"\n", ""
		}
	}
	return text, nil
}
