package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// planted is in all credentials of the cluster.
const planted = "hunter2hunter2"

// dumpedCluster is the sample, with a plugin's pod that writes a log, and a tenant's pod that has secrets.
func dumpedCluster(t *testing.T) *fake.Clientset {
	t.Helper()
	objects := append(sampleObjects(t), objectsOf(t, "testdata/parts.yaml")...)
	for _, o := range objects {
		p, isPod := o.(*corev1.Pod)
		switch {
		case isPod && p.Name == "kata-vfio-plugin-a":
			p.Spec.Containers = []corev1.Container{{Name: "plugin", Env: []corev1.EnvVar{{Name: "LOGIN", Value: planted}}}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "plugin", RestartCount: 1}}
		case isPod && p.Name == "infer":
			p.Labels = map[string]string{"customer": "globex"}
			p.Spec.Containers = []corev1.Container{{Name: "main", Image: "registry.example/globex/model:7", Args: []string{planted}, Env: []corev1.EnvVar{{Name: "X", Value: planted}}}}
			p.Status.PodIPs = []corev1.PodIP{{IP: "10.9.0.77"}}
		}
	}
	pull := decode(t, []byte(`{kind: Event, metadata: {namespace: team-b, name: pull}, involvedObject: {kind: Pod, namespace: team-b, name: infer}, message: "Back-off pulling image registry.example/globex/model:7 from 10.9.0.77"}`))
	others := decode(t, []byte(`{kind: Event, metadata: {namespace: team-z, name: others}, involvedObject: {kind: Pod, namespace: team-z, name: initech}, message: x}`))
	tenants := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kata-vfio-system", Name: "kata-vfio-tenants"}, Data: map[string]string{"namespace.team-b": "0123456789abcdef"}}
	stranger := decode(t, []byte(`{kind: Pod, metadata: {namespace: team-z, name: initech}}`))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kata-vfio-system", Name: "s"}, Data: map[string][]byte{"k": []byte(planted)}}
	c := client(append(objects, pull, others, tenants, stranger, secret))
	c.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetSubresource() == "log", &runtime.Unknown{Raw: []byte("claim=team-b/infer-gpu-x7k2p prepared\ntoken: " + planted + "\n")}, nil
	})
	return c
}

// dumped runs a command line and returns the files of the archive.
func dumped(t *testing.T, c *fake.Clientset, args ...string) (files map[string]string, stderr string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "dump.tar.gz")
	_, stderr, code := ask(t, c, append([]string{"sysdump", "-o", name}, args...)...)
	if code != 0 {
		t.Fatalf("exit code %d, want 0: %s", code, stderr)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, stderr
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(content)
	}
}

// TestSysdumpHasWhatSupportAsksFor, of tenants only what concerns claims, and no credentials. Masked, it names no tenant.
func TestSysdumpHasWhatSupportAsksFor(t *testing.T) {
	for _, args := range [][]string{nil, {"--mask"}} {
		files, _ := dumped(t, dumpedCluster(t), args...)
		for name, want := range map[string]string{
			"cluster/resourceslices.json": "gpu-0000-3b-00-0", "cluster/resourceclaims.json": "gpu-0000-42-00-0", "cluster/daemonsets.json": "kata-vfio-bootstrap",
			"cluster/deployments.json": "kata-vfio-controller", "cluster/pods.json": "kata-vfio-plugin-a", "cluster/events.json": "Back-off pulling image",
			"cluster/configmaps.json": "kata-vfio-tenants", "logs/kata-vfio-plugin-a/plugin.log": "prepared", "logs/kata-vfio-plugin-a/plugin.previous.log": "prepared",
			"versions.json": "kubernetes", output.BundleManifestName: "sha256",
		} {
			if !strings.Contains(files[name], want) {
				t.Errorf("%v: %s lacks %q:\n%.500s", args, name, want, files[name])
			}
		}
		never := []string{planted, "initech", "customer"}
		if args != nil {
			never = append(never, "team-a", "team-b", "infer", "train", "globex", "10.9.0.77", "10.9.0.7")
		} else if !strings.Contains(files["cluster/pods.json"], "infer") {
			t.Errorf("the pods lack the tenant's:\n%s", files["cluster/pods.json"])
		}
		for name, content := range files {
			for _, word := range never {
				if strings.Contains(content, word) {
					t.Errorf("%v: %s has %q", args, name, word)
				}
			}
		}
	}
}

// TestSysdumpListsWhatItMayNotRead with the reason, and has the rest. Where only the plugin's namespace may be listed, it has that.
func TestSysdumpListsWhatItMayNotRead(t *testing.T) {
	c := dumpedCluster(t)
	for _, resource := range []string{"nodes", "configmaps"} {
		forbid(c, resource)
	}
	c.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetNamespace() == "", nil, forbidden("pods")
	})
	c.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return a.GetSubresource() == "log", nil, forbidden("pods/log")
	})
	files, stderr := dumped(t, c)
	for _, want := range []string{"nodes could not be listed: ", "configmaps could not be listed: ", "pods are those of namespace kata-vfio-system only: ", "logs/kata-vfio-plugin-a/plugin.log could not be read: "} {
		if !strings.Contains(files[output.BundleManifestName], want) || !strings.Contains(stderr, "note: "+want) {
			t.Errorf("neither manifest nor stderr has %q:\n%s\n%s", want, files[output.BundleManifestName], stderr)
		}
	}
	if !strings.Contains(files["cluster/pods.json"], "kata-vfio-plugin-a") || strings.Contains(files["cluster/pods.json"], "infer") || files["cluster/nodes.json"] != "" {
		t.Errorf("the files are not those that may be read: %s", files["cluster/pods.json"])
	}
}

func TestSysdumpWithoutRightsOrSense(t *testing.T) {
	c := sample(t)
	forbid(c, "*")
	name := filepath.Join(t.TempDir(), "dump.tar.gz")
	if _, stderr, code := ask(t, c, "sysdump", "-o", name); code != exitForbidden {
		t.Errorf("without rights: exit code %d, want %d: %s", code, exitForbidden, stderr)
	}
	if _, err := os.Stat(name); err == nil {
		t.Error("an archive of nothing was written")
	}
	if _, stderr, code := ask(t, sample(t), "sysdump", "--since", "-1h"); code != command.Usage {
		t.Errorf("--since -1h: exit code %d, want %d: %s", code, command.Usage, stderr)
	}
	if _, stderr, code := ask(t, sample(t), "sysdump", "-o", filepath.Join(name, "x")); code != command.Failed {
		t.Errorf("a file that can't be written: exit code %d, want %d: %s", code, command.Failed, stderr)
	}
}

// TestSysdumpSaysWhatItWouldRead, and reads nothing.
func TestSysdumpSaysWhatItWouldRead(t *testing.T) {
	s := &session{now: at, connect: func() (changer, string, error) { return nil, "", errors.New("it connects") }}
	var stdout, stderr bytes.Buffer
	if err := execute(t.Context(), s, []string{"sysdump", "--dry-run", "--since", "2h"}, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"resourceclaims", "pods/log", "since 2h0m0s", "kata-vfio-system"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the list lacks %q:\n%s", want, &stdout)
		}
	}
}

// TestArchiveIsPrivateAndWhole, also where a file of before is replaced.
func TestArchiveIsPrivateAndWhole(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a.tar.gz")
	if err := os.WriteFile(name, []byte("before"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writePrivate(name, []byte("new")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil || string(text) != "new" {
		t.Errorf("got %q, %v; want the new text", text, err)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v; want 0600", info.Mode(), err)
	}
	if err := writePrivate(filepath.Join(dir, "none", "a.tar.gz"), nil); err == nil {
		t.Error("got no error for a directory that is not there")
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writePrivate(filepath.Join(dir, "taken"), []byte("new")); err == nil {
		t.Error("got no error where a directory has the name")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("got %v, %v; want the archive and the directory, and nothing half written", left, err)
	}
}

// TestSysdumpKeepsTheEndOfALog, however long it is: the incident is at the end.
func TestSysdumpKeepsTheEndOfALog(t *testing.T) {
	line := strings.Repeat("debug ", 200) + "\n"
	for name, c := range map[string]struct {
		text string
		long bool
	}{
		"a short log":            {"first\nincident\n", false},
		"a log of 25 MiB":        {"first\n" + strings.Repeat(line, 25<<20/len(line)) + "incident\n", true},
		"a log without an end":   {"first\n" + strings.Repeat(line, 3<<20/len(line)) + "incident", true},
		"a line that is as long": {"first " + strings.Repeat("debug ", 1<<20) + "incident", true},
	} {
		client := dumpedCluster(t)
		client.PrependReactor("get", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.GetSubresource() == "log", &runtime.Unknown{Raw: []byte(c.text)}, nil
		})
		files, _ := dumped(t, client)
		log := files["logs/kata-vfio-plugin-a/plugin.log"]
		if !strings.HasSuffix(strings.TrimSpace(log), "incident") || strings.HasPrefix(log, "first") == c.long || len(log) > maxLog {
			t.Errorf("%s: got %d bytes that begin with %.20q and end with %q", name, len(log), log, log[max(0, len(log)-20):])
		}
	}
}

// TestTailOfALogWithoutAnEnd: what was read is returned with the reason why there is not more.
func TestTailOfALogWithoutAnEnd(t *testing.T) {
	const text = "one\ntwo\nthree\n"
	for limit, want := range map[int64]string{int64(len(text)): "three\n", int64(len(text)) - 1: "three\n", 8: "two\nt"} {
		got, err := readTail(strings.NewReader(text), 8, limit)
		if whole := limit == int64(len(text)); string(got) != want || (err == nil) != whole {
			t.Errorf("limit %d: got %q, %v; want %q", limit, got, err, want)
		}
	}
	got, err := readTail(io.MultiReader(strings.NewReader(text), iotest.ErrReader(errors.New("the node is gone"))), 100, 100)
	if string(got) != text || err == nil {
		t.Errorf("got %q, %v; want what was read, and why it ends", got, err)
	}
}
