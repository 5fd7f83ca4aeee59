package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
)

// driverName is the driver whose entries in claims' statuses have anchors, as in v1alpha1.
const driverName = "kata-vfio.dev"

// FindAnchors returns the signed checkpoints in a file, without duplicates. It sets [Anchor.Foreign] of those that others than the
// node and the admin can have written.
//
// Two places are not foreign: a file that contains nothing but notes, and the entries of a claim's status.devices whose pool
// belongs to the node that the checkpoint names. The chart's policy claims keeps others from writing these entries. All other
// places are foreign: tenants can write any text into their own annotations and Events, and into logs.
func FindAnchors(data []byte, file string) []Anchor {
	var anchors []Anchor
	places := map[string]int{} // in anchors, by the note
	add := func(found []Anchor) {
		for _, a := range found {
			same, known := places[a.Signed]
			switch {
			case !known:
				places[a.Signed] = len(anchors)
				anchors = append(anchors, a)
			case anchors[same].Foreign && !a.Foreign:
				anchors[same] = a
			}
		}
	}
	if eachObject(data, func(o *object) { add(o.anchors(file)) }) {
		return anchors
	}
	add(from(FindCheckpoints(data), file, !onlyNotes(data)))
	return anchors
}

// from sets From and Foreign of the checkpoints that it was given.
func from(found []Anchor, where string, foreign bool) []Anchor {
	for i := range found {
		found[i].From, found[i].Foreign = where, foreign
	}
	return found
}

// onlyNotes reports whether a text has nothing but checkpoints.
func onlyNotes(data []byte) bool {
	return strings.TrimSpace(checkpointPattern.ReplaceAllString(string(data), "")) == ""
}

// object is a Kubernetes object, or another JSON value.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`

	raw json.RawMessage
}

// eachObject calls found for each object in a sequence of JSON values, and for the items of lists. It returns false if data is not
// JSON; it may have called found before that.
func eachObject(data []byte, found func(*object)) bool {
	for dec := json.NewDecoder(bytes.NewReader(data)); ; {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return true
		}
		if err != nil {
			return false
		}
		var list struct {
			APIVersion string            `json:"apiVersion"`
			Kind       string            `json:"kind"`
			Items      []json.RawMessage `json:"items"`
		}
		if json.Unmarshal(raw, &list) != nil || list.Items == nil {
			found(objectIn(raw, object{}))
			continue
		}
		// Items of a typed list, as the API server returns it, have no kind and version of their own.
		of := object{APIVersion: list.APIVersion, Kind: strings.TrimSuffix(list.Kind, "List")}
		for _, item := range list.Items {
			found(objectIn(item, of))
		}
	}
}

// objectIn returns the object in a JSON value. Items of a typed list have their kind from the list.
func objectIn(raw json.RawMessage, of object) *object {
	o := of
	if json.Unmarshal(raw, &o) != nil {
		o = object{}
	}
	o.raw = raw
	return &o
}

// anchors returns the checkpoints in all of the object's strings.
func (o *object) anchors(file string) []Anchor {
	where := file
	if o.Kind != "" && o.Metadata.Name != "" {
		where = strings.TrimPrefix(strings.Join([]string{o.Metadata.Namespace, o.Metadata.Name}, "/"), "/")
		where = o.Kind + " " + where
	}
	return slices.Concat(o.ofPlugins(where), from(FindCheckpoints(o.raw), where, true))
}

// ofPlugins returns the checkpoints that the plugins of the nodes wrote. Each plugin writes them into the entries of its own node's
// devices.
func (o *object) ofPlugins(where string) []Anchor {
	if o.Kind != "ResourceClaim" || !strings.HasPrefix(o.APIVersion, "resource.k8s.io/") {
		return nil
	}
	var claim struct {
		Status struct {
			Devices []struct {
				Driver string          `json:"driver"`
				Pool   string          `json:"pool"`
				Data   json.RawMessage `json:"data"`
			} `json:"devices"`
		} `json:"status"`
	}
	if json.Unmarshal(o.raw, &claim) != nil {
		return nil
	}
	var anchors []Anchor
	for _, d := range claim.Status.Devices {
		node, _, _ := strings.Cut(d.Pool, "/")
		if d.Driver != driverName {
			continue
		}
		for _, a := range FindCheckpoints(d.Data) {
			if a.Origin == OriginPrefix+node {
				anchors = append(anchors, a)
			}
		}
	}
	return from(anchors, where+" status.devices", false)
}
