package chart

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
)

// shape is values.schema.json, as far as it is compared with the blueprint.
type shape struct {
	Ref                  string `json:"$ref"`
	Type                 string
	Enum                 []string
	Pattern              string
	Properties           map[string]*shape
	AdditionalProperties any
	Items                *shape
	Defs                 map[string]*shape `json:"$defs"`
}

func readShape(t *testing.T) *shape {
	t.Helper()
	s := &shape{}
	text := strings.ReplaceAll(read(t, "values.schema.json"), `["string", "null"]`, `"string"`)
	text = regexp.MustCompile(`"type": \["(\w+)", "\w+"\]`).ReplaceAllString(text, `"type": "$1"`)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Helm refuses what the program would: a pod that is given it starts again and again.
func TestSchemaHasTheFieldsOfTheBlueprint(t *testing.T) {
	root := readShape(t)
	c := comparison{T: t, root: root}
	c.compare("", root.Properties["bootstrap"].Properties["blueprint"], reflect.TypeFor[blueprint.Blueprint]())
}

type comparison struct {
	*testing.T
	root *shape
}

// compare compares what a part of the schema takes with what a type does, and their members.
func (c *comparison) compare(path string, s *shape, kind reflect.Type) {
	c.Helper()
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		s = c.root.Defs[name]
	}
	if kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	want := map[reflect.Kind]string{reflect.Bool: "boolean", reflect.Int: "integer", reflect.String: "string", reflect.Slice: "array", reflect.Map: "object", reflect.Struct: "object"}[kind.Kind()]
	if reflect.PointerTo(kind).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		want = "string"
	}
	if s.Type != want {
		c.Errorf("%s is of type %q, and the program takes %s", path, s.Type, want)
	}
	switch {
	case want == "array":
		c.compare(path+"[0]", s.Items, kind.Elem())
	case want == "object" && kind.Kind() == reflect.Struct:
		c.fields(path, s, kind)
	case s.Enum != nil:
		c.choices(path, s.Enum)
	}
}

func (c *comparison) fields(path string, s *shape, kind reflect.Type) {
	c.Helper()
	if s.AdditionalProperties != false {
		c.Errorf("%s takes fields that the program does not know", path)
	}
	var names []string
	for f := range kind.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "apiVersion" || name == "kind" {
			continue // the chart says them
		}
		names = append(names, name)
		if of := s.Properties[name]; of != nil {
			c.compare(strings.TrimPrefix(path+"."+name, "."), of, f.Type)
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff(names, slices.Sorted(maps.Keys(s.Properties))); diff != "" {
		c.Errorf("%s: the fields differ (-program +schema):\n%s", path, diff)
	}
}

// choices has the program judge each choice, and one that is none: its refusal lists all.
func (c *comparison) choices(path string, all []string) {
	c.Helper()
	if strings.HasPrefix(path, "virtualFunctions") || strings.HasPrefix(path, "vfio.keepOffMatching") || strings.HasPrefix(path, "vfio.resetMethods[0].match") {
		return // the node config's, which are compared elsewhere
	}
	for _, one := range append(slices.Clone(all), "?") {
		err := parse(path, one)
		if refused := err != nil && strings.Contains(err.Error(), path+": "); refused != (one == "?") {
			c.Errorf("%s: %q: the program says %v", path, one, err)
		}
		for _, choice := range all {
			if one == "?" && !strings.Contains(fmt.Sprint(err), choice) {
				c.Errorf("%s: the program does not know %q: %v", path, choice, err)
			}
		}
	}
}

// parse has the program read a blueprint with one field.
func parse(path, value string) error {
	text := fmt.Sprintf("%q", value)
	for _, name := range slices.Backward(strings.Split(path, ".")) {
		if list, ok := strings.CutSuffix(name, "[0]"); ok {
			name, text = list, "["+text+"]"
		}
		text = fmt.Sprintf("{%s: %s}", name, text)
	}
	_, err := blueprint.Parse([]byte(fmt.Sprintf("{apiVersion: %s, kind: %s, %s", blueprint.APIVersion, blueprint.Kind, text[1:])))
	return err
}

// Bootstrap refuses less than ten seconds, and the alert KataVFIONodeNotVerified waits two hours.
func TestBootstrapLooksAsOftenAsItMay(t *testing.T) {
	takes := regexp.MustCompile(readShape(t).Properties["bootstrap"].Properties["every"].Pattern)
	for n := range 8000 {
		for _, unit := range []string{"s", "m", "h"} {
			text := fmt.Sprintf("%d%s", n, unit)
			every, err := time.ParseDuration(text)
			if may := err == nil && every >= 10*time.Second && every <= time.Hour; takes.MatchString(text) != may {
				t.Errorf("%s is taken: %t", text, !may)
			}
		}
	}
	if !strings.Contains(read(t, "monitoring/alerts.yaml"), "kata_vfio_bootstrap_verified_timestamp_seconds) > 7200") {
		t.Error("the alert waits for another time: see that it is longer than the longest time between two looks")
	}
}
