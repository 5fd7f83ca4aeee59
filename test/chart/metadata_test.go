package chart

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// Artifact Hub shows a chart by its metadata, and links that lead nowhere as well as others.
func TestMetadataLeadsSomewhere(t *testing.T) {
	var c struct {
		Icon, Home, Description string
		Keywords, Sources       []string
		Maintainers             []struct{ Name, URL string }
		Annotations             map[string]string
	}
	if err := yaml.Unmarshal([]byte(read(t, "Chart.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	var links []struct{ Name, URL string }
	if err := yaml.Unmarshal([]byte(c.Annotations["artifacthub.io/links"]), &links); err != nil {
		t.Fatal(err)
	}
	if len(c.Keywords) == 0 || len(c.Sources) == 0 || len(c.Maintainers) == 0 || len(links) == 0 || c.Annotations["artifacthub.io/license"] == "" {
		t.Errorf("the chart has no keywords, sources, maintainers, links or license: %+v", c)
	}
	all := []string{c.Icon}
	for _, one := range append(links, c.Maintainers...) {
		all = append(all, one.URL)
	}
	for _, url := range all {
		_, path, ok := strings.Cut(url, "/main/")
		if _, err := os.Stat("../../" + path); !ok || err != nil {
			t.Errorf("%s is not in this repository: %v", url, err)
		}
	}
}
