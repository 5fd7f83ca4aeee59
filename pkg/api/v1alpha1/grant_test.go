package v1alpha1_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

func TestGrants(t *testing.T) {
	for name, tt := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"no annotation":                {nil, false},
		"another annotation":           {map[string]string{"example.com/namespaces": "*"}, false},
		"an empty one":                 {map[string]string{v1alpha1.AnnotationNamespaces: ""}, false},
		"all":                          {map[string]string{v1alpha1.AnnotationNamespaces: "*"}, true},
		"the namespace":                {map[string]string{v1alpha1.AnnotationNamespaces: "team-a"}, true},
		"the namespace among others":   {map[string]string{v1alpha1.AnnotationNamespaces: "team-b, team-a"}, true},
		"all among others":             {map[string]string{v1alpha1.AnnotationNamespaces: "team-b,*"}, true},
		"others":                       {map[string]string{v1alpha1.AnnotationNamespaces: "team-b,team-c"}, false},
		"a name that begins like it":   {map[string]string{v1alpha1.AnnotationNamespaces: "team-a1,team"}, false},
		"a pattern, which there is no": {map[string]string{v1alpha1.AnnotationNamespaces: "team-*"}, false},
		"other separators":             {map[string]string{v1alpha1.AnnotationNamespaces: "team-b team-a"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := v1alpha1.Grants(tt.annotations, "team-a"); got != tt.want {
				t.Errorf("Grants(%v) = %t", tt.annotations, got)
			}
		})
	}
	if v1alpha1.Grants(map[string]string{v1alpha1.AnnotationNamespaces: "team-a,"}, "") {
		t.Error("a claim without a namespace is granted a class")
	}
}
