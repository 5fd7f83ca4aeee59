package lint

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	strictjson "sigs.k8s.io/json"
	strictyaml "sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// document is one object of a file.
type document struct {
	file   string
	number int
	// name is the object's, with its kind: "Pod/gpu".
	kind, name string
	value      map[string]any
	root       *yaml.Node
	line       int
}

const (
	noObject = "no Kubernetes object: want apiVersion, kind and other fields"
	noKind   = "no Kubernetes object: apiVersion or kind is missing"
)

// parse reads a document. It is nil if the text has only comments.
func parse(p part) (*document, *v1alpha1.Problem) {
	root, problem := p.node()
	if root == nil {
		return nil, problem
	}
	// Strict, because of a key that is there twice the API server would only see the last value.
	text, err := strictyaml.YAMLToJSONStrict(p.text)
	if err != nil {
		return nil, malformed(err, p.line)
	}
	d := &document{root: root, line: p.line}
	if err := json.Unmarshal(text, &d.value); err != nil {
		return nil, &v1alpha1.Problem{Line: p.line, Text: noObject}
	}
	var meta struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name         string `json:"name"`
			GenerateName string `json:"generateName"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(text, &meta); err != nil {
		return nil, &v1alpha1.Problem{Line: p.line, Text: "no Kubernetes object: want text in apiVersion, kind, metadata.name and metadata.generateName"}
	}
	if meta.APIVersion == "" || meta.Kind == "" {
		return nil, &v1alpha1.Problem{Line: p.line, Text: noKind}
	}
	d.kind = meta.Kind
	d.name = strings.TrimSuffix(meta.Kind+"/"+meta.Metadata.Name+meta.Metadata.GenerateName, "/")
	return d, nil
}

// lineOfError finds the line in an error of the YAML reader.
var lineOfError = regexp.MustCompile(`line (\d+): `)

// malformed returns an error of the YAML reader, whose lines are those of the document.
func malformed(err error, first int) *v1alpha1.Problem {
	text, line := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "), first
	text = strings.TrimPrefix(text, "yaml: ")
	if found := lineOfError.FindStringSubmatch(text); found != nil {
		n, _ := strconv.Atoi(found[1]) // digits
		line, text = first+n-1, strings.Replace(text, found[0], "", 1)
	}
	return &v1alpha1.Problem{Line: line, Text: "no YAML: " + strings.Join(strings.Fields(text), " ")}
}

// lineAt returns the line of a field, or that of the closest field around it.
func (d *document) lineAt(field string) int {
	at, line := d.root, d.root.Line
	for _, step := range steps(field) {
		key, value := child(at, step)
		if value == nil {
			break
		}
		at, line = value, key.Line
	}
	return d.line + line - 1
}

// child returns the key and the value of a field of a node, or an entry of a list twice; nil if there is none, or if the node is nil.
func child(of *yaml.Node, step string) (key, value *yaml.Node) {
	switch i, err := strconv.Atoi(step); {
	case of == nil:
		return nil, nil
	case of.Kind == yaml.AliasNode:
		return child(of.Alias, step)
	case of.Kind == yaml.SequenceNode && err == nil && i < len(of.Content):
		return of.Content[i], of.Content[i]
	case of.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(of.Content); i += 2 {
			if of.Content[i].Value == step {
				return of.Content[i], of.Content[i+1]
			}
		}
	}
	return nil, nil
}

// step finds one step of a path: a name, an index, or a key in brackets and quotes.
var step = regexp.MustCompile(`\["((?:[^"\\]|\\.)*)"\]|\[(\d+)\]|([^.\[\]]+)`)

// steps splits a path: spec.volumes[0].hostPath, metadata.annotations["cdi.k8s.io/a"].
func steps(path string) (all []string) {
	for _, found := range step.FindAllStringSubmatch(path, -1) {
		all = append(all, found[1]+found[2]+found[3])
	}
	return all
}

// join appends a field to a path.
func join(path, name string) string {
	switch {
	case strings.ContainsAny(name, ".[]/\""):
		return path + "[" + strconv.Quote(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

func (d *document) group() schema.GroupVersionKind {
	version, _ := d.value["apiVersion"].(string)
	return schema.FromAPIVersionAndKind(version, d.kind)
}

// subjects returns the objects to which the rules apply: the object itself, the pod templates in it, and the items of a list.
func (d *document) subjects() []*subject {
	gvk := d.group()
	if strings.HasSuffix(d.kind, "List") || d.kind == "List" {
		return d.items()
	}
	if gvk.Group == resourceapi.GroupName {
		return d.ofGroup(gvk)
	}
	if gvk.Group == "scheduling.k8s.io" && (d.kind == "PodGroup" || d.kind == "Workload") {
		return []*subject{{in: d, object: &unstructured.Unstructured{Object: d.value}}}
	}
	if gvk.Group == "" && d.kind == "Pod" {
		return []*subject{d.typed("", d.value, &corev1.Pod{})}
	}
	return d.templates("", d.value)
}

// items are the subjects of the items of a list.
func (d *document) items() (all []*subject) {
	items, _ := d.value["items"].([]any)
	for i := range items {
		one, text := d.item(i, items[i])
		if text != "" {
			misfits := []fault{{path: fmt.Sprintf("items[%d]", i), text: text}}
			all = append(all, &subject{in: d, object: &unstructured.Unstructured{}, misfits: misfits})
			continue
		}
		all = append(all, one.subjects()...)
	}
	return all
}

// item is an item of a list, or why it is not an object. Without apiVersion and kind, it has those of the list, as the API prints it: a PodList
// has Pods.
func (d *document) item(i int, item any) (one *document, text string) {
	value, ok := item.(map[string]any)
	if !ok {
		return nil, noObject
	}
	kind, _ := value["kind"].(string)
	version, _ := value["apiVersion"].(string)
	if kind == "" && version == "" {
		kind, version = strings.TrimSuffix(d.kind, "List"), d.group().GroupVersion().String()
		value = maps.Clone(value)
		value["kind"], value["apiVersion"] = kind, version
	}
	if kind == "" || version == "" {
		return nil, noKind
	}
	meta, _ := value["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	_, node := child(d.root, "items")
	if _, node = child(node, strconv.Itoa(i)); node == nil {
		node = d.root // the items of a merge key
	}
	return &document{file: d.file, number: d.number, kind: kind, name: kind + "/" + name, value: value, root: node, line: d.line}, ""
}

// ofGroup is the subject of an object of resource.k8s.io. Other versions than v1 have other fields, and the API server converts them.
func (d *document) ofGroup(gvk schema.GroupVersionKind) []*subject {
	object, ok := map[string]runtime.Object{
		"ResourceClaim": &resourceapi.ResourceClaim{}, "ResourceClaimTemplate": &resourceapi.ResourceClaimTemplate{}, "DeviceClass": &resourceapi.DeviceClass{},
	}[d.kind]
	if !ok {
		return nil
	}
	s := d.typed("", d.value, object)
	if gvk.Version != resourceapi.SchemeGroupVersion.Version {
		s.misfits = []fault{{
			path: "apiVersion", text: fmt.Sprintf("only %s is looked at, and this is %s", resourceapi.SchemeGroupVersion, gvk.GroupVersion()),
			fix: "write the object in " + resourceapi.SchemeGroupVersion.String() + ", in which a request's fields are below `exactly`",
		}}
	}
	return []*subject{s}
}

// templates returns the pod templates at any depth: those of Deployments and Jobs, and those of kinds that extensions have added.
func (d *document) templates(at string, value any) (all []*subject) {
	switch v := value.(type) {
	case []any:
		for i := range v {
			all = append(all, d.templates(fmt.Sprintf("%s[%d]", at, i), v[i])...)
		}
	case map[string]any:
		// A pod template is always inside another object: at the top, such a spec is of a kind that is not known here.
		if spec, ok := v["spec"].(map[string]any); ok && at != "" {
			if _, ok := spec["containers"].([]any); ok {
				return []*subject{d.typed(at, map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": v["metadata"], "spec": v["spec"]}, &corev1.Pod{})}
			}
		}
		for _, name := range sortedKeys(v) {
			all = append(all, d.templates(join(at, name), v[name])...)
		}
	}
	return all
}

// misfit finds the field in an error of the strict decoder.
var misfit = regexp.MustCompile(`^(?:unknown|duplicate) field "(.*)"$`)

// typed decodes a value strictly, as kubectl asks the API server to.
func (d *document) typed(at string, value map[string]any, into runtime.Object) *subject {
	s := &subject{in: d, at: at, object: into}
	text, err := json.Marshal(value)
	if err != nil {
		s.misfits = append(s.misfits, fault{text: err.Error()})
		return s
	}
	unknown, err := strictjson.UnmarshalStrict(text, into)
	if err != nil {
		s.misfits = append(s.misfits, fault{text: strings.TrimPrefix(err.Error(), "json: ")})
	}
	for _, err := range unknown {
		f := fault{text: err.Error(), fix: "`kubectl explain` lists the fields"}
		if found := misfit.FindStringSubmatch(f.text); found != nil {
			f.path, f.text = found[1], "no such field in Kubernetes 1.37"
		}
		s.misfits = append(s.misfits, f)
	}
	return s
}
