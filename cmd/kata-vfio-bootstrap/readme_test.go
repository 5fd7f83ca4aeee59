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

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/test/readme"
)

// Who is in trouble types what the README says.
func TestTheREADMERunsCommandsThatThereAre(t *testing.T) {
	for _, heading := range []string{"Install on a cluster", "Uninstall", "When something is wrong"} {
		for _, args := range readme.Commands(t, heading, "kata-vfio-bootstrap") {
			readme.Check(t, newCommand(io.Discard, io.Discard), args)
		}
	}
}

// Every field of a blueprint is explained: in a row of the README's table, and named in the help.
func TestTheREADMEHasEveryFieldOfTheBlueprint(t *testing.T) {
	_, section, _ := strings.Cut(readme.Section(t, "Install on a cluster"), "\n### Make nodes fit\n")
	rows := strings.Split(section, "\n")
	for path, kind := range leaves("", reflect.TypeFor[blueprint.Blueprint]()) {
		i := slices.IndexFunc(rows, func(row string) bool { return strings.HasPrefix(row, "| `") && strings.Contains(row, "`"+path+"`") })
		if i < 0 {
			t.Errorf("the README's table lacks %s", path)
			continue
		}
		words := []string{path[strings.LastIndexByte(path, '.')+1:]}
		if kind.Kind() == reflect.Slice && kind.Elem().Kind() == reflect.Struct && !reflect.PointerTo(kind.Elem()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			words = append(words, slices.Collect(maps.Keys(leaves("", kind.Elem())))...)
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

// The chart's bootstrap leaves no program on nodes: what it did is taken back by its pods, which go with the chart.
func TestTheREADMERevertsNodesWhileThePodsAreThere(t *testing.T) {
	section := readme.Section(t, "Uninstall")
	revert, uninstall := strings.Index(section, "-- kata-vfio-bootstrap revert --enter-node\n"), strings.Index(section, "`helm uninstall ")
	if revert < 0 || uninstall < 0 || uninstall < revert {
		t.Errorf("from the pod it reverts at %d, and uninstalls the chart at %d", revert, uninstall)
	}
	fromPod := func(args []string) bool { return args[0] == "verify" && slices.Contains(args, "--enter-node") }
	if !slices.ContainsFunc(readme.Commands(t, "When something is wrong", "kata-vfio-bootstrap"), fromPod) {
		t.Error("who has the program in the pod alone is not told how to verify")
	}
}
