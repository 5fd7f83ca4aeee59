package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPathsInJSONAreAbsolute: a machine gets each path as a person does, in each command, also those of problems, of running settings and
// of files that revert leaves.
func TestPathsInJSONAreAbsolute(t *testing.T) {
	root := image(t)
	put(t, filepath.Join(root, "sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts"), "Y\n")
	link := filepath.Join(root, "etc/systemd/system/sockets.target.wants/kata-vfio-pod-resources.socket")
	put(t, link, "x")
	path := regexp.MustCompile(`"path": *"([^"]*)"`)
	for _, step := range []struct {
		command, least string
		before         func()
	}{
		{"plan", "/etc/systemd/system/sockets.target.wants/kata-vfio-pod-resources.socket", func() {}},
		{"apply", "/etc/modprobe.d/50-kata-vfio.conf", func() {
			if err := os.Remove(link); err != nil {
				t.Fatal(err)
			}
		}},
		{"status", "/etc/modprobe.d/50-kata-vfio.conf", func() { put(t, filepath.Join(root, "etc/modprobe.d/50-kata-vfio.conf"), "edited\n") }},
		{"revert", "/etc/modprobe.d/50-kata-vfio.conf", func() {}},
	} {
		step.before()
		stdout, stderr, _ := try(t, step.command, "--root", root, "-o", "json")
		found := path.FindAllStringSubmatch(stdout, -1)
		if !strings.Contains(stdout, step.least) {
			t.Errorf("%s has no %s:\n%s%s", step.command, step.least, stdout, stderr)
		}
		for _, p := range found {
			if !strings.HasPrefix(p[1], "/") || strings.HasPrefix(p[1], "//") {
				t.Errorf("%s has the path %q, want one with a leading slash", step.command, p[1])
			}
		}
	}
}
