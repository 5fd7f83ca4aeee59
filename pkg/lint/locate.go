package lint

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// locating finds the part of an object that makes a validation fail: the validation would pass without it. A policy says that it refuses an
// object, but not because of which part.
type locating struct {
	ctx        context.Context
	policy     *policy
	request    *request
	validation int
	object     map[string]any
}

// place is such a part.
type place struct {
	path  string
	depth int
	// leaf says that it is one value.
	leaf bool
}

// locate returns the path of the smallest such part. It is empty if there is none, for example if two parts are each refused for a reason
// of their own.
func (p *policy) locate(ctx context.Context, r *request, validation int) (string, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(r.object)
	if err != nil {
		return "", fmt.Errorf("encode the object: %w", err)
	}
	kind, _ := kindAndResource(r.object)
	object["apiVersion"], object["kind"] = kind.GroupVersion().String(), kind.Kind
	l := &locating{ctx, p, r, validation, object}
	found, err := l.below(object, place{}, nil)
	return found.path, err
}

// below returns the smallest part of a value that makes the validation fail. It prefers single fields to lists and objects, and then deeper
// parts to others. It returns the value itself if no part of it is enough. set replaces the value by another one.
func (l *locating) below(value any, at place, set func(any)) (place, error) {
	best := at
	for _, p := range parts(value, at, set) {
		// The object is changed in place, so each part is restored before the next one is tried.
		p.remove()
		passes, err := l.passes()
		p.restore()
		if err != nil {
			return best, err
		}
		if !passes {
			continue
		}
		found, err := l.below(p.value, place{path: p.path, depth: at.depth + 1, leaf: isLeaf(p.value)}, p.set)
		if err != nil {
			return best, err
		}
		if found.isBetter(best) {
			best = found
		}
	}
	return best, nil
}

// inner is a field of an object, or an entry of a list.
type inner struct {
	path            string
	value           any
	remove, restore func()
	set             func(any)
}

// parts returns the parts of a value. Of a Kubernetes object, it returns only those that the author writes: metadata and spec.
func parts(value any, at place, set func(any)) (all []inner) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			if at.depth == 0 && name != "metadata" && name != "spec" {
				continue
			}
			one := inner{path: join(at.path, name), value: v[name], remove: func() { delete(v, name) }, set: func(to any) { v[name] = to }}
			one.restore = func() { v[name] = one.value }
			all = append(all, one)
		}
	case []any:
		for i := range v {
			all = append(all, inner{
				path: fmt.Sprintf("%s[%d]", at.path, i), value: v[i], set: func(to any) { v[i] = to },
				// A clone, because Delete moves the items of the list that restore puts back.
				remove: func() { set(slices.Delete(slices.Clone(v), i, i+1)) }, restore: func() { set(v) },
			})
		}
	}
	return all
}

func isLeaf(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

func (p place) isBetter(than place) bool {
	if p.leaf != than.leaf {
		return p.leaf
	}
	return p.depth > than.depth
}

// passes reports whether the validation passes now. An expression that fails without the part counts as passing, because it tells nothing
// about the rest.
func (l *locating) passes() (bool, error) {
	changed := *l.request
	changed.object = &unstructured.Unstructured{Object: l.object}
	c, err := l.policy.compile()
	if err != nil {
		return false, err
	}
	results, err := changed.evaluate(l.ctx, c.conditions)
	if err != nil {
		return false, err
	}
	// Without the part, the policy's match conditions no longer apply to the object, which leaves it to other policies.
	if !l.policy.isAsked(results) {
		return true, nil
	}
	result := results[len(l.policy.object.Spec.MatchConditions)+l.validation]
	return result.Error != nil || result.EvalResult == types.True, nil
}
