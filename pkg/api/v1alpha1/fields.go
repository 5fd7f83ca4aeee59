package v1alpha1

import (
	"reflect"
	"strings"
)

// names returns the JSON names of a struct's fields in declaration order,
// those of embedded structs included.
func names(t reflect.Type) []string {
	var all []string
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			all = append(all, nameOf(f))
		}
	}
	return all
}

// indexOf finds the field of a struct with a JSON name.
func indexOf(t reflect.Type, name string) ([]int, bool) {
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous && nameOf(f) == name {
			return f.Index, true
		}
	}
	return nil, false
}

func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// said returns the JSON names of the parameters that c sets, in declaration
// order. Those of the embedded [TypeMeta] are no parameters.
func said[T any](c *T) []string {
	var set []string
	v := reflect.ValueOf(c).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		if len(f.Index) == 1 && !f.Anonymous && !v.FieldByIndex(f.Index).IsZero() {
			set = append(set, nameOf(f))
		}
	}
	return set
}

// lay puts every parameter that over sets in place of base's.
func lay[T any](base, over *T) {
	b, o := reflect.ValueOf(base).Elem(), reflect.ValueOf(over).Elem()
	for _, name := range said(over) {
		if index, ok := indexOf(b.Type(), name); ok {
			b.FieldByIndex(index).Set(o.FieldByIndex(index))
		}
	}
}

// emptyLists returns the JSON names of c's lists that were written but hold
// nothing.
func emptyLists[T any](c *T) []string {
	var empty []string
	v := reflect.ValueOf(c).Elem()
	for _, f := range reflect.VisibleFields(v.Type()) {
		list := v.FieldByIndex(f.Index)
		if list.Kind() == reflect.Slice && !list.IsNil() && list.Len() == 0 {
			empty = append(empty, nameOf(f))
		}
	}
	return empty
}
