package main

import (
	"encoding"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

// The commands in the documents must exist.
func TestDocumentsRunCommandsThatExist(t *testing.T) {
	docs.CheckCommands(t, "kata-vfio-bootstrap", func() *cobra.Command { return newCommand(io.Discard, io.Discard) }, append(docs.All(t), docs.Evidence)...)
}

// Every field of a blueprint is explained: in a row of the README's table, and named in the help.
func TestREADMEHasEveryFieldOfTheBlueprint(t *testing.T) {
	rows := strings.Split(docs.Section(t, "cmd/kata-vfio-bootstrap/README.md", "Blueprint"), "\n")
	for path, kind := range leaves("", reflect.TypeFor[blueprint.Blueprint]()) {
		i := slices.IndexFunc(rows, func(row string) bool {
			cells := strings.Split(row, "|") // other rows may name the field in what they explain
			return len(cells) > 1 && strings.Contains(cells[1], "`"+path+"`")
		})
		if i < 0 {
			t.Errorf("the README's table lacks %s", path)
			continue
		}
		words := []string{path[strings.LastIndexByte(path, '.')+1:]}
		if kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Struct && !reflect.PointerTo(kind.Elem()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			for field := range leaves("", kind.Elem()) { // of a struct in it, the field's own name
				words = append(words, field[strings.LastIndexByte(field, '.')+1:])
			}
			for _, word := range words[1:] {
				if !strings.Contains(rows[i], "`"+word+"`") {
					t.Errorf("the README's row of %s lacks %s", path, word)
				}
			}
		}
		for _, word := range words {
			if !regexp.MustCompile(`\b` + word + `\b`).MatchString(fields) {
				t.Errorf("the help lacks %s of %s", word, path)
			}
		}
	}
}

// leaves are the fields of a struct and of those in it, by their paths. Versions are fields.
func leaves(path string, of reflect.Type) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for f := range of.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "apiVersion" || name == "kind" {
			continue
		}
		if f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[blueprint.Version]() {
			maps.Copy(all, leaves(path+name+".", f.Type))
			continue
		}
		all[path+name] = f.Type
	}
	return all
}

// The chart's bootstrap leaves no program on nodes: its pods revert their changes, and are deleted with the chart.
func TestUninstallRevertsNodesBeforeItRemovesTheChart(t *testing.T) {
	section := docs.Section(t, "deploy/README.md", "Uninstall")
	revert, uninstall := strings.Index(section, "-- kata-vfio-bootstrap revert --enter-node\n"), strings.Index(section, "helm uninstall ")
	if revert < 0 || uninstall < revert {
		t.Errorf("the pods revert at %d, and the chart is removed at %d", revert, uninstall)
	}
	fromPod := func(c docs.Command) bool { return c.Args[0] == "verify" && slices.Contains(c.Args, "--enter-node") }
	if !slices.ContainsFunc(docs.Commands(t, "kata-vfio-bootstrap", "deploy/RUNBOOK.md"), fromPod) {
		t.Error("the runbook does not verify a node by bootstrap's pod")
	}
}
