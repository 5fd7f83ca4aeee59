package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/kata-vfio/kata-vfio/test/lab/endpoint"
)

// bundle writes a spec where containerd would, and returns the call that creates it.
func bundle(t *testing.T, id string, spec *specs.Spec) call {
	t.Helper()
	c := call{command: "create", bundle: t.TempDir(), id: id}
	if err := writeSpec(filepath.Join(c.bundle, "config.json"), spec); err != nil {
		t.Fatal(err)
	}
	return c
}

// sandboxOf is a sandbox's spec. It has no devices: containerd gives sandboxes none.
func sandboxOf(annotations map[string]string) *specs.Spec {
	return &specs.Spec{Version: "1.1.0", Hostname: "db-0", Annotations: annotations, Linux: &specs.Linux{}}
}

// withServer is a node whose server has a device for pod db-0 of team-a. Booted VMs are recorded, and boot ends with err.
func withServer(t *testing.T, booted *[]vm, err error) node {
	t.Helper()
	dir := t.TempDir()
	n := node{
		podResources: holding(&podresourcesv1.ContainerResources{
			Devices: []*podresourcesv1.ContainerDevices{of("kata-vfio.dev/vfio", "gpu")},
		}).serve(t),
		cdi: []string{t.TempDir()}, vms: filepath.Join(dir, "run", "vm"), sys: filepath.Join(dir, "sys"),
		boot: func(v vm) error {
			*booted = append(*booted, v)
			return err
		},
	}
	writeCDI(t, n.cdi[0], cdiDevice{"gpu", []device{cdev0}})
	return n
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// wantNone checks that nothing is there.
func wantNone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there (%v)", path, err)
	}
}

func TestSandboxGetsAVMWithThePodsDevices(t *testing.T) {
	var booted []vm
	n := withServer(t, &booted, nil)
	c := bundle(t, "s1", sandboxOf(ofPod()))
	before := readText(t, filepath.Join(c.bundle, "config.json"))
	if err := n.handle(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(n.vms, "s1"); len(booted) != 1 || booted[0].dir != want {
		t.Errorf("booted %v; want the one of %s", booted, want)
	}
	want := `[{"path":"/dev/vfio/devices/vfio0","major":510,"minor":0}]`
	if diff := cmp.Diff(want, readText(t, filepath.Join(n.vms, "s1", "devices.json"))); diff != "" {
		t.Errorf("devices.json (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, readText(t, filepath.Join(c.bundle, "config.json"))); diff != "" {
		t.Errorf("the sandbox's spec was changed (-want +got):\n%s", diff)
	}
}

// TestSandboxGetsThePhysicalEndpointsOfItsNamespaceToo, after what it has asked for.
func TestSandboxGetsThePhysicalEndpointsOfItsNamespaceToo(t *testing.T) {
	var booted []vm
	n := withServer(t, &booted, nil)
	group := device{"/dev/vfio/15", 511, 15}
	n.takeEndpoints = func(_ context.Context, netns string) ([]taken, error) {
		if netns != "/run/netns/s1" {
			t.Errorf("looked into %q", netns)
		}
		return []taken{{endpoint.Endpoint{Function: "0000:21:10.0", MAC: "02:00:5e:10:00:01", Addresses: []string{"192.0.2.10/24"}}, group}}, nil
	}
	sandbox := sandboxOf(ofPod())
	sandbox.Linux.Namespaces = []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace, Path: "/run/netns/s1"}}
	if err := n.handle(t.Context(), bundle(t, "s1", sandbox)); err != nil {
		t.Fatal(err)
	}
	devices, err := n.vm("s1").devices()
	if err != nil || len(devices) != 2 || devices[1] != group {
		t.Errorf("the VM has %v, %v; want what was asked for, then %v", devices, err, group)
	}
	if endpoints, err := n.vm("s1").endpoints(); err != nil || len(endpoints) != 1 || endpoints[0].MAC != "02:00:5e:10:00:01" {
		t.Errorf("endpoints %+v, %v", endpoints, err)
	}
}

func TestContainerIsFittedToTheVMThatItsSandboxGot(t *testing.T) {
	var booted []vm
	n := withServer(t, &booted, nil)
	if err := n.handle(t.Context(), bundle(t, "s1", sandboxOf(ofPod()))); err != nil {
		t.Fatal(err)
	}
	c := bundle(t, "c1", container(cdev0, null))
	if err := n.handle(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	got, err := readSpec(filepath.Join(c.bundle, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := container(null)
	want.Mounts = append(want.Mounts, specs.Mount{
		Destination: "/vm", Type: "bind", Source: filepath.Join(n.vms, "s1"), Options: []string{"rbind", "ro"},
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if len(booted) != 1 {
		t.Errorf("%d VMs booted; want the sandbox's only", len(booted))
	}
}

func TestRefusedContainerKeepsItsSpec(t *testing.T) {
	var booted []vm
	n := withServer(t, &booted, nil)
	if err := n.handle(t.Context(), bundle(t, "s1", sandboxOf(ofPod()))); err != nil {
		t.Fatal(err)
	}
	c := bundle(t, "c1", container(cdev1))
	before := readText(t, filepath.Join(c.bundle, "config.json"))
	if err := n.handle(t.Context(), c); err == nil {
		t.Error("a container with a device that its VM has not is created")
	}
	if diff := cmp.Diff(before, readText(t, filepath.Join(c.bundle, "config.json"))); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestSandboxThatFailsLeavesNothing(t *testing.T) {
	stranger := ofPod()
	stranger[sandboxName] = "db-1"
	for name, test := range map[string]struct {
		annotations map[string]string
		boot        error
		cdi         string // a directory instead of the node's
		want        string
		booted      int
	}{
		"the VM does not boot":      {annotations: ofPod(), boot: errors.New("no IOMMU group"), want: "no IOMMU group", booted: 1},
		"the server has no answer":  {annotations: stranger, want: "no pod team-a/db-1"},
		"a device is not to be had": {annotations: ofPod(), cdi: t.TempDir(), want: "unresolvable CDI devices"},
	} {
		t.Run(name, func(t *testing.T) {
			var booted []vm
			n := withServer(t, &booted, test.boot)
			if test.cdi != "" {
				n.cdi = []string{test.cdi}
			}
			err := n.handle(t.Context(), bundle(t, "s1", sandboxOf(test.annotations)))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("create: %v; want an error with %q", err, test.want)
			}
			if len(booted) != test.booted {
				t.Errorf("%d VMs booted; want %d", len(booted), test.booted)
			}
			wantNone(t, filepath.Join(n.vms, "s1"))
		})
	}
}

// TestVMOfAnotherCreateIsLeftAlone: as with runc, a second creation by one ID fails and the first is unharmed.
func TestVMOfAnotherCreateIsLeftAlone(t *testing.T) {
	var booted []vm
	n := withServer(t, &booted, nil)
	c := bundle(t, "s1", sandboxOf(ofPod()))
	if err := n.handle(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := n.handle(t.Context(), c); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second create: %v; want that it exists", err)
	}
	if _, err := n.vm("s1").devices(); err != nil {
		t.Errorf("after a second create the first one's VM is lost: %v", err)
	}
}

func TestBundleThatCannotBeReadFails(t *testing.T) {
	broken := call{command: "create", bundle: t.TempDir(), id: "s1"}
	if err := os.WriteFile(filepath.Join(broken.bundle, "config.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]call{
		"no bundle": {command: "create", bundle: filepath.Join(t.TempDir(), "none"), id: "s1"}, "no JSON": broken,
	} {
		n := node{vms: t.TempDir()}
		if err := n.handle(t.Context(), c); err == nil || !strings.Contains(err.Error(), "read the bundle") {
			t.Errorf("%s: %v", name, err)
		}
		wantNone(t, filepath.Join(n.vms, "s1"))
	}
}

func TestOtherCommandsAreRuncsAlone(t *testing.T) {
	n := withVM(t, cdev0)
	for _, command := range []string{"start", "state", "kill", "exec", "pause", ""} {
		if err := n.handle(t.Context(), call{command: command, id: "s1", bundle: "/none"}); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	if _, err := n.vm("s1").devices(); err != nil {
		t.Error(err)
	}
}
