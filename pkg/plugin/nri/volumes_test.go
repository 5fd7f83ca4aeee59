package nri_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// volumeKinds are the kinds of volume of a pod, by the source that a container's list of mounts has for one (kubelet:
// GetPodVolumeDir, pkg/volume/util/subpath; containerd: internal/cri/server container_image_mount.go).
func volumeKinds() map[string]string {
	const pod = "/var/lib/kubelet/pods/3f0c1d6e-1111-4111-8111-000000000001/"
	return map[string]string{
		"emptyDir":                       pod + "volumes/kubernetes.io~empty-dir/scratch",
		"projected":                      pod + "volumes/kubernetes.io~projected/kube-api-access-x7k2p",
		"configMap":                      pod + "volumes/kubernetes.io~configmap/settings",
		"secret":                         pod + "volumes/kubernetes.io~secret/key",
		"downwardAPI":                    pod + "volumes/kubernetes.io~downward-api/labels",
		"CSI, of a PVC":                  pod + "volumes/kubernetes.io~csi/pvc-0b7f/mount",
		"CSI, inline":                    pod + "volumes/kubernetes.io~csi/secrets-store/mount",
		"ephemeral":                      pod + "volumes/kubernetes.io~csi/pvc-5d1c/mount",
		"nfs":                            pod + "volumes/kubernetes.io~nfs/share",
		"iSCSI":                          pod + "volumes/kubernetes.io~iscsi/lun0",
		"local":                          pod + "volumes/kubernetes.io~local-volume/ssd",
		"hostPath":                       "/srv/models",
		"image":                          "/run/containerd/io.containerd.grpc.v1.cri/image-volumes/s1/sha256-0c9a",
		"subPath of a PVC":               pod + "volume-subpaths/pvc-0b7f/app/0",
		"subPath of an emptyDir":         pod + "volume-subpaths/scratch/app/1",
		"subPath of an image":            "/run/containerd/io.containerd.grpc.v1.cri/image-volumes/s1/sha256-0c9a/data/model",
		"subPath of a CSI volume's data": pod + "volumes/kubernetes.io~csi/pvc-0b7f/mount/deep/er",
		"the termination log":            pod + "containers/app/7c1f",
		"/etc/hosts":                     pod + "etc-hosts",
	}
}

// make makes what a source of a mount is on the node.
func (n *node) make(path, what string) {
	n.t.Helper()
	at := filepath.Join(n.dir, path)
	err := os.MkdirAll(filepath.Dir(at), 0o755)
	switch {
	case err != nil:
	case what == "a directory":
		err = os.MkdirAll(at, 0o755)
	case what == "a file":
		err = os.WriteFile(at, []byte("x"), 0o644)
	case what == "a socket's place, a FIFO":
		err = unix.Mkfifo(at, 0o600)
	case what == "a link to a file":
		n.make(path+".data", "a file")
		err = os.Symlink(filepath.Base(path)+".data", at)
	case what == "a block device node":
		err = unix.Mknod(at, unix.S_IFBLK|0o600, int(unix.Mkdev(253, 7)))
	case what == "a character device node":
		err = unix.Mknod(at, unix.S_IFCHR|0o600, int(unix.Mkdev(10, 200)))
	case what == "a link to a device node":
		n.make(path+".node", "a block device node")
		err = os.Symlink(filepath.Base(path)+".node", at)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// Each kind of volume is mounted with any kind of file except a device node, in pods with and without claims.
func TestVolumesOfEachKind(t *testing.T) {
	for kind, source := range volumeKinds() {
		for what, want := range map[string]rule.Code{
			"a directory": "", "a file": "", "a socket's place, a FIFO": "", "a link to a file": "",
			"a block device node": rule.MountNotAllowed, "a character device node": rule.MountNotAllowed, "a link to a device node": rule.MountNotAllowed,
			"nothing": rule.Unverifiable,
		} {
			t.Run(kind+"/"+what, func(t *testing.T) {
				n, r := tenants(t), rules()
				n.make(source, what)
				for _, p := range []*api.PodSandbox{pod("p1", "s1"), pod("p9", "s9")} {
					if refused := r.Container(n.table, n.kernel, p, mountOf("bind", source), nil); code(refused) != want {
						t.Errorf("in pod %s: Container = %v, want %q", p.GetUid(), refused, want)
					}
				}
			})
		}
	}
}

// blockVolume gives a container a raw block volume as containerd does for volumeDevices: a device and its rule.
func blockVolume(major, minor int64) *api.Container {
	return plain(func(c *api.Container) {
		c.Linux.Devices = append(c.Linux.Devices, &api.LinuxDevice{Path: "/dev/xvda", Type: "b", Major: major, Minor: minor})
		c.Linux.Resources.Devices = append(c.Linux.Resources.Devices, &api.LinuxDeviceCgroup{Allow: true, Type: "b", Major: api.Int64(major), Minor: api.Int64(minor), Access: "rwm"})
	})
}

// A raw block volume comes as a device, and a volume may lead to the same device. Every other device node stays out.
func TestRawBlockVolumes(t *testing.T) {
	mounted := func(c *api.Container, source string) *api.Container {
		c.Mounts = append(c.Mounts, &api.Mount{Destination: "/mnt", Type: "bind", Source: source, Options: []string{"rbind"}})
		return c
	}
	n, r := tenants(t), startRuntime(t)
	p, _ := n.run(r, nil)
	r.ready(p)
	for name, tt := range map[string]struct {
		container *api.Container
		refused   string
	}{
		"alone":                              {blockVolume(253, 7), ""},
		"with a volume of files":             {mounted(blockVolume(253, 7), volume("data")), ""},
		"with a mount of the same device":    {mounted(blockVolume(253, 7), volume("block")), ""},
		"with a mount of another device":     {mounted(blockVolume(253, 9), volume("block")), "(MountNotAllowed)"},
		"with a mount of a character device": {mounted(blockVolume(253, 7), volume("character")), "(MountNotAllowed)"},
	} {
		for _, sandbox := range []*api.PodSandbox{pod("p1", "s1"), pod("p9", "s9")} {
			_, err := r.createContainer(sandbox, tt.container)
			if tt.refused == "" && err != nil || tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)) {
				t.Errorf("%s, in pod %s: CreateContainer = %v, want %q", name, sandbox.GetUid(), err, tt.refused)
			}
		}
	}
}
