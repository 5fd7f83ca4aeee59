package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/kube/kubetest"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/ledger/writer"
	"github.com/kata-vfio/kata-vfio/test/board"
)

// secretWord is in every credential that is planted, tenantWords are the names.
const secretWord = "hunter2hunter2"

func tenantWords() []string {
	return []string{"acme-prod", "train-weights", "acme-pod-0", "globex", "forecast", "initech", "tps-report"}
}

// plantedNode is a node with credentials and tenants' names wherever they may be.
func plantedNode(t *testing.T) *board.Tree {
	t.Helper()
	tree := server(t)
	tree.Give("acme-prod", "train-weights", tree.Devices["gpu0"])
	w, err := writer.Open(t.Context(), writer.Config{Dir: tree.Path(ledger.DefaultDir), Node: "n1", BootID: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), ledger.Event{
		Type: ledger.Prepare, Result: ledger.OK, Claim: &ledger.Claim{UID: "uid-9", Namespace: "globex", Name: "forecast"},
		Pods: []ledger.Pod{{UID: "pod-9", Name: "acme-pod-0"}}, Devices: []ledger.Device{{Address: tree.Devices["gpu1"]}},
		Reason: "globex/forecast before acme-prod",
	}); err != nil {
		t.Fatal(err)
	}
	tree.Put("var/lib/kata-vfio/journal/damaged.json", `{"claim":"initech/tps-report"`)
	tree.Put("etc/kata-vfio/node.yaml", "# for acme-prod\napiVersion: x\ntoken: "+secretWord+"\n")
	tree.Put("etc/containerd/config.toml", "version = 3\n[plugins.x.registry.auth]\npassword = '"+secretWord+"'\n")
	tree.Put("etc/kubernetes/kubelet.conf", "apiVersion: v1\nkind: Config\nusers:\n- user:\n    client-key-data: "+secretWord+"\n    new-thing: "+secretWord+"\n")
	tree.Put("var/log/pods/kata-vfio-system_kata-vfio-plugin-x_uid/plugin/0.log",
		"claim globex/forecast: ready\nregistry https://ops:"+secretWord+"@r.example\nkey:\n-----BEGIN PRIVATE KEY-----\n"+secretWord+"\n-----END PRIVATE KEY-----\n")
	tree.Put("var/log/syslog", "kernel: vfio-pci 0000:3b:00.0 for acme-pod-0\nsshd: initech logged in\n")
	tree.Start(board.Process{Comm: "kubelet", Arguments: []string{"/usr/bin/kubelet", "--bootstrap-token", secretWord, "--hostname-override=globex"}})
	return tree
}

// gathered returns the files of a bundle by name, and those of its archive of the node
// below "node.tgz/"; names and links are part of the contents.
func gathered(t *testing.T, root string, args ...string) (files map[string]string, file string) {
	t.Helper()
	return gatheredBy(t, root, append([]string{"collect", "--support"}, args...)...)
}

// gatheredBy is gathered by a command line.
func gatheredBy(t *testing.T, root string, args ...string) (files map[string]string, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "support.tgz")
	if _, stderr, err := execute(t, append(args, "--root", root, "--file", file)...); err != nil {
		t.Fatal(err, stderr)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	files = map[string]string{}
	untar(t, "", data, files)
	untar(t, "node.tgz/", []byte(files["node.tgz"]), files)
	delete(files, "node.tgz")
	return files, file
}

func untar(t *testing.T, prefix string, data []byte, into map[string]string) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		into[prefix+h.Name] = string(content) + h.Linkname
	}
}

// TestBundleHasWhatSupportAsksFor, and its archive of the node is one of `collect`.
func TestBundleHasWhatSupportAsksFor(t *testing.T) {
	files, _ := gathered(t, plantedNode(t).Root())
	for name, want := range map[string]string{
		"manifest.json": `"masked": false`, "devices.json": "0000:3b:00.0", "findings.json": `"findings"`, "versions.json": `"programs"`,
		"status.json": "train-weights", "ledger-verification.json": `"sound": true`, "ledger-tail.ndjson": "globex",
		"logs/var/log/syslog": "vfio-pci 0000:3b:00.0", "logs/var/log/pods/kata-vfio-system_kata-vfio-plugin-x_uid/plugin/0.log": "globex/forecast: ready",
		"node.tgz/node/etc/kata-vfio/node.yaml": "apiVersion: x", "node.tgz/node/etc/containerd/config.toml": "version = 3",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q:\n%.500s", name, want, files[name])
		}
	}
	if strings.Contains(files["logs/var/log/syslog"], "sshd") {
		t.Error("the node's log is there in full")
	}
	for name, content := range files {
		for _, word := range []string{secretWord, "PRIVATE KEY"} {
			if strings.Contains(content, word) || strings.Contains(name, word) {
				t.Errorf("%s has a credential: %.300s", name, content)
			}
		}
		if base := filepath.Base(name); base == ledger.PrivateKeyFile || base == ledger.PseudonymsFile {
			t.Errorf("the bundle has %s", name)
		}
	}
}

// TestMaskedBundleHasNoTenantsName in any file, name or link; it says what that costs,
// and the archive in it is still judged.
func TestMaskedBundleHasNoTenantsName(t *testing.T) {
	tree := plantedNode(t)
	files, file := gathered(t, tree.Root(), "--mask")
	for name, content := range files {
		if filepath.Ext(name) == ".json" && !strings.HasPrefix(name, "node.tgz/") && !json.Valid([]byte(content)) {
			t.Errorf("%s is no JSON: %.300s", name, content)
		}
		for _, word := range append(tenantWords(), secretWord) {
			if strings.Contains(content, word) || strings.Contains(name, word) {
				t.Errorf("%s has %q: %.300s", name, word, content)
			}
		}
	}
	var m output.BundleManifest
	if err := json.Unmarshal([]byte(files["manifest.json"]), &m); err != nil {
		t.Fatal(err)
	}
	notes := strings.Join(m.Notes, "\n")
	if !m.Masked || !strings.Contains(notes, "no longer verify") || !strings.Contains(notes, "damaged.json is left out") {
		t.Errorf("masked %t, notes:\n%s", m.Masked, notes)
	}
	if !strings.Contains(files["ledger-verification.json"], `"sound": true`) {
		t.Errorf("verification: %s", files["ledger-verification.json"])
	}
	node := archiveIn(t, file)
	if _, stderr, err := execute(t, "devices", "--root", node); err != nil {
		t.Errorf("the masked archive can't be read: %v %s", err, stderr)
	}
}

// markFiles are marks: of a failed stage, with a field of a later version, of a stage that runs, one that can't be read, and
// the remainder of a write.
func markFiles(namespace, claim, pod string) map[string]string {
	who := `{"uid":"u","namespace":"` + namespace + `","name":"` + claim + `"}`
	stage := `"claim":` + who + `,"pod":"` + pod + `","podUID":"p","profile":"memory","since":"2026-11-28T06:00:00Z"`
	return map[string]string{
		"0000:3b:00.0.json":     `{"address":"0000:3b:00.0","claim":` + who + `,"since":"2026-11-28T05:00:00Z","later":"cyberdyne","failed":{"stage":{` + stage + `},"verdict":"Dirty","reason":"bar0"}}`,
		"0000:5e:00.0.json":     `{"address":"0000:5e:00.0","claim":` + who + `,"stage":{` + stage + `}}`,
		"0000:86:00.0.json":     `{"address":"0000:86:00.0","claim":{"namespace":"hooli`,
		".0000:86:00.0.json123": `{"claim":{"namespace":"initrode`,
	}
}

// TestMaskedBundleHasNoNameOfAMark checks the marks of devices that wait for a sanitizing stage: nothing else of the node
// names their last tenant once its record is gone.
func TestMaskedBundleHasNoNameOfAMark(t *testing.T) {
	tree := server(t)
	for name, content := range markFiles("soylent", "green", "wiper-7") {
		tree.Put("var/lib/kata-vfio/journal/unsanitized/"+name, content+"\n")
	}
	tree.Record(ledger.Event{Type: ledger.Sanitize, Result: ledger.OK, Sanitize: &ledger.Sanitization{
		Profile: "memory", Verdict: "Clean", After: &ledger.Claim{UID: "w", Namespace: "weyland", Name: "yutani"},
	}})
	files, _ := gathered(t, tree.Root(), "--mask")
	for name, content := range files {
		for _, word := range []string{"soylent", "green", "wiper-7", "cyberdyne", "hooli", "initrode", "weyland", "yutani"} {
			if strings.Contains(content, word) || strings.Contains(name, word) {
				t.Errorf("%s has %q: %.300s", name, word, content)
			}
		}
	}
	mark := files["node.tgz/node/var/lib/kata-vfio/journal/unsanitized/0000:3b:00.0.json"]
	if m, err := journal.DecodeSanitizeMark("0000:3b:00.0.json", []byte(mark)); err != nil || m.Failed == nil || m.Claim.UID != "u" {
		t.Errorf("the mark is %q, %v", mark, err)
	}
	plain, _ := gathered(t, tree.Root())
	if !strings.Contains(plain["status.json"], "wiper-7") {
		t.Errorf("without a mask, status.json lacks the mark:\n%s", plain["status.json"])
	}
}

// TestOrdinaryNamesOfAMarkAreReplaced checks names that are the node's words, too, which are replaced in fields only.
func TestOrdinaryNamesOfAMarkAreReplaced(t *testing.T) {
	tree := server(t)
	for name, content := range markFiles("gpu", "vfio", "kata") {
		tree.Put("var/lib/kata-vfio/journal/unsanitized/"+name, content+"\n")
	}
	files, _ := gathered(t, tree.Root(), "--mask")
	const dir = "node.tgz/node/var/lib/kata-vfio/journal/unsanitized/"
	for _, name := range []string{"status.json", dir + "0000:3b:00.0.json", dir + "0000:5e:00.0.json"} {
		text := strings.ReplaceAll(files[name], `\"`, `"`)
		for _, field := range []string{`"namespace":"gpu"`, `"name":"vfio"`, `"pod":"kata"`} {
			if text == "" || strings.Contains(text, field) {
				t.Errorf("%s has %s:\n%s", name, field, text)
			}
		}
	}
}

// ordinary are names that are words of the node, too: a tenant may choose them on purpose.
func ordinary() []string {
	return []string{"dev", "gpu", "vfio", "pci", "config", "net", "proc", "kata-vfio", "kata", "claim", "prepared", "0000", "0000-3b-00-0", "flr", "name"}
}

// TestOrdinaryNamesLeaveAMaskedNodeAsItIs: it is judged as it was, and in fields that hold names
// they are replaced all the same.
func TestOrdinaryNamesLeaveAMaskedNodeAsItIs(t *testing.T) {
	tree := server(t)
	words := ordinary()
	for i, device := range []string{"gpu0", "gpu1"} {
		rec := tree.Give(words[i], words[i+2], tree.Devices[device])
		tree.StartVMM(rec)
	}
	for i, word := range words {
		tree.Record(ledger.Event{Type: ledger.Prepare, Result: ledger.OK, Claim: &ledger.Claim{UID: "uid-" + word, Namespace: word, Name: words[len(words)-1-i]}})
	}
	files, file := gathered(t, tree.Root(), "--mask")
	for _, name := range []string{"status.json", "ledger-tail.ndjson", "findings.json"} {
		for _, word := range words {
			if field := `"namespace":"` + word + `"`; strings.Contains(strings.ReplaceAll(files[name], `": "`, `":"`), field) {
				t.Errorf("%s has %s", name, field)
			}
		}
	}
	if !strings.Contains(files["manifest.json"], "stay in other text") || !strings.Contains(files["devices.json"], `"0000:3b:00.0"`) {
		t.Errorf("manifest: %s\ndevices: %.300s", files["manifest.json"], files["devices.json"])
	}
	node := archiveIn(t, file)
	want, got := statesOf(t, "node", "--root", tree.Root()), statesOf(t, "eval", node)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the masked archive is judged in another way (-node +archive):\n%s", diff)
	}
	devices, _, err1 := execute(t, "devices", "-o", "json", "--root", tree.Root())
	copied, _, err2 := execute(t, "devices", "-o", "json", "--root", node)
	if err1 != nil || err2 != nil || devices != copied {
		t.Errorf("the masked archive has other devices: %v, %v: %s", err1, err2, cmp.Diff(devices, copied))
	}
}

// archiveIn unpacks the node's archive from a bundle.
func archiveIn(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	outer := map[string]string{}
	untar(t, "", data, outer)
	node := filepath.Join(t.TempDir(), "node.tgz")
	if err := os.WriteFile(node, []byte(outer["node.tgz"]), 0o600); err != nil {
		t.Fatal(err)
	}
	return node
}

// statesOf returns what checks say, except for those of the ledger (OBS), whose lines do not verify any
// more when names in them are replaced.
func statesOf(t *testing.T, args ...string) map[string]int {
	t.Helper()
	stdout, stderr, err := execute(t, append(args, "-o", "json", "--severity", "info")...)
	var doc finding.Report
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatal(err, stderr)
	}
	if code := exitCode(err); err != nil && code != exitFindings && code != exitLedger {
		t.Fatal(err)
	}
	states := map[string]int{}
	for _, f := range doc.Findings {
		if !strings.HasPrefix(f.ID, "OBS-") {
			states[f.ID+" "+string(f.State)]++
		}
	}
	return states
}

// TestNobodysNameIsInAMaskedLog: neither of pods that have logs or containers on the node, nor of
// those that our own log is about, nor what runtimes say of others; our own log stays.
func TestNobodysNameIsInAMaskedLog(t *testing.T) {
	tree := server(t)
	tree.Run("umbrella")
	own := "var/log/pods/kata-vfio-system_kata-vfio-plugin-x_uid/plugin/0.log"
	tree.Put(own, "level=WARN msg=refused pod=soylent/green-1 err=x\n{\"msg\":\"y\",\"claim\":\"tyrell/nexus\"}\ncyberdyne and umbrella\n")
	tree.Put("var/log/pods/cyberdyne_skynet-0_uid/c/0.log", "x")
	tree.Put("var/log/pods/hooli_kata-vfio-demo_uid/c/0.log", "output of a tenant")
	tree.Put("var/log/containerd.log", "RunPodSandbox for kata pod weyland/yutani\n")
	tree.Put("var/log/syslog", "Nov 22 10:00:00 n1 kernel: vfio-pci 0000:3b:00.0: reset done\nNov 22 10:00:00 n1 containerd[7]: kata weyland kernel: x\n")
	files, _ := gathered(t, tree.Root(), "--mask")
	if log := files["logs/"+own]; !strings.Contains(log, "level=WARN msg=refused pod=name-") {
		t.Errorf("our own log is %q", log)
	}
	if log := files["logs/var/log/syslog"]; log != "Nov 22 10:00:00 n1 kernel: vfio-pci 0000:3b:00.0: reset done\n" {
		t.Errorf("syslog is %q", log)
	}
	for name, content := range files {
		for _, word := range []string{"umbrella", "soylent", "green-1", "tyrell", "nexus", "cyberdyne", "hooli", "output of a tenant", "weyland", "yutani"} {
			if strings.Contains(content, word) || strings.Contains(name, word) {
				t.Errorf("%s has %q: %.300s", name, word, content)
			}
		}
	}
}

// TestContainersEnvironmentStaysOnTheNode: a check reads whose mounts are whose, in the file that
// has the environment, too.
func TestContainersEnvironmentStaysOnTheNode(t *testing.T) {
	tree := server(t)
	tree.Give("t1", "c", tree.Devices["gpu0"])
	tree.Put("run/containerd/io.containerd.runtime.v2.task/k8s.io/x/config.json", `{"process":{"env":["LOGIN=`+secretWord+`"],"args":["`+secretWord+`"]},
		"annotations":{"io.kubernetes.cri.sandbox-namespace":"t1","io.kubernetes.cri.sandbox-name":"p","note":"`+secretWord+`"},
		"mounts":[{"source":"/run/containerd/containerd.sock","options":["`+secretWord+`"]}]}`)
	sameFindings(t, tree.Root())
	files, _ := gathered(t, tree.Root())
	for name, content := range files {
		if strings.Contains(content, secretWord) {
			t.Errorf("%s has it: %.300s", name, content)
		}
	}
}

// TestBundleIsItsOwners, even if it replaces a file with another mode.
func TestBundleIsItsOwners(t *testing.T) {
	tree := server(t)
	file := filepath.Join(t.TempDir(), "x.tgz")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chmod(file, 0o644)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := execute(t, "collect", "--root", tree.Root(), "--file", file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// TestHalfANameIsLeftOut: what was cut within a name.
func TestHalfANameIsLeftOut(t *testing.T) {
	for value, want := range map[string]string{
		"claim globex/forec…": "claim globex/…", "whole": "whole", "acme-pr…": "…", "x: …": "x: …",
	} {
		if got := whole(value); got != want {
			t.Errorf("%q became %q, want %q", value, got, want)
		}
	}
}

// askedCluster has our own objects, claims with and for our devices and others', and credentials.
func askedCluster() fleet.Lister {
	claim := func(namespace, driver string) *resourceapi.ResourceClaim {
		return &resourceapi.ResourceClaim{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "train-weights", Labels: map[string]string{"team": "initech"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "initech"}},
			},
			Status: resourceapi.ResourceClaimStatus{
				Allocation: &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
					Results: []resourceapi.DeviceRequestAllocationResult{{Driver: driver, Device: "gpu-0000-3b-00-0"}},
				}},
				ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "acme-pod-0"}},
			},
		}
	}
	env := []corev1.EnvVar{{Name: "PROXY_LOGIN", Value: secretWord}}
	waits := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "initech", Name: "tps-report"}, Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
		Requests: []resourceapi.DeviceRequest{{Name: "waits-for", Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "gpu.kata-vfio.dev"}}},
	}}}
	byOtherName := waits.DeepCopy()
	byOtherName.Name, byOtherName.Spec.Devices.Requests[0].Name, byOtherName.Spec.Devices.Requests[0].Exactly.DeviceClassName = "second-report", "also-waits", "fast"
	class := &resourceapi.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "fast", Annotations: map[string]string{v1alpha1.AnnotationNamespaces: "*"}}}
	return kubetest.New(fake.NewClientset(
		waits, byOtherName, class, claim("acme-prod", "kata-vfio.dev"), claim("elsewhere", "other.example"),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kata-vfio", Name: "s"}, Data: map[string][]byte{"k": []byte(secretWord)}},
		&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kata-vfio", Name: "kata-vfio-plugin-x"},
			Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{{Env: env}}, Containers: []corev1.Container{{Env: env, Args: []string{"--password", secretWord}}},
				EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Env: env}}},
			},
		},
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kata-vfio", Name: "c"}, Data: map[string]string{"a.yaml": "token: A\npassword: " + secretWord + "\n"},
		},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "globex", Name: "forecast"}},
	))
}

// TestGatherReadsCluster: our own objects and the claims with our devices; no
// Secret, nobody else's claims, and masked no word of a tenant's.
func TestGatherReadsCluster(t *testing.T) {
	client := askedCluster()
	for _, masked := range []bool{false, true} {
		var b output.Bundle
		var mask *output.Mask
		if masked {
			mask = output.NewMask()
		}
		if _, err := (&fleet.Dump{Namespace: "kata-vfio", Mask: mask}).Add(t.Context(), client, &b); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := b.Write(&out, output.BundleManifest{}, mask); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		untar(t, "", out.Bytes(), files)
		all := ""
		for name, content := range files {
			all += content
			if !json.Valid([]byte(content)) {
				t.Errorf("masked %t: %s is no JSON", masked, name)
			}
		}
		if !strings.Contains(files["cluster/resourceclaims.json"], "waits-for") || !strings.Contains(files["manifest.json"], "namespace kata-vfio has no DaemonSet") {
			t.Errorf("masked %t: the bundle lacks a claim that waits, or a note: %s", masked, all)
		}
		if !strings.Contains(files["cluster/resourceclaims.json"], "also-waits") {
			t.Errorf("masked %t: the bundle lacks a claim that waits by a DeviceClass of the site's own name: %s", masked, all)
		}
		if !strings.Contains(files["cluster/resourceclaims.json"], "gpu-0000-3b-00-0") || !strings.Contains(files["cluster/pods.json"], "kata-vfio-plugin-x") {
			t.Errorf("masked %t: the bundle lacks our objects: %s", masked, all)
		}
		never := []string{secretWord, "other.example", "globex", "managedFields"}
		if masked {
			never = append(never, tenantWords()...)
		}
		for _, word := range never {
			if strings.Contains(all, word) {
				t.Errorf("masked %t: the bundle has %q", masked, word)
			}
		}
	}
}

// What bootstrap did is in the bundle, with credentials and names out of the blueprint that its journal quotes, and without its backups.
func TestGatherHasWhatBootstrapDid(t *testing.T) {
	tree := plantedNode(t)
	tree.Put("var/lib/kata-vfio/bootstrap/journal.json", `{"sum":"x","journal":{"version":1,"blueprint":"# for acme-prod\\ntoken: `+secretWord+`\\nname: pool\\n","entries":[{"path":"etc/modprobe.d/50-kata-vfio.conf"}]}}`)
	tree.Put("var/lib/kata-vfio/bootstrap/verified.json", `{"version":1,"outcome":"fit","differences":[]}`)
	tree.Put("var/lib/kata-vfio/bootstrap/backups/abc", "password = "+secretWord)
	for _, args := range [][]string{nil, {"--mask"}} {
		files, _ := gathered(t, tree.Root(), args...)
		records := files["bootstrap/journal.json"]
		if !strings.Contains(records, "50-kata-vfio.conf") || !strings.Contains(files["bootstrap/verified.json"], `"fit"`) {
			t.Errorf("%v: the journal is %q, the record %q", args, records, files["bootstrap/verified.json"])
		}
		if strings.Contains(records, secretWord) || strings.Contains(records, "acme-prod") != (args == nil) {
			t.Errorf("%v: the journal is %s", args, records)
		}
		for name, text := range files {
			if strings.Contains(name, "backups") || strings.Contains(text, secretWord) {
				t.Errorf("%v: %s has %q", args, name, text)
			}
		}
	}
}

// TestFormerNameOfSupportBundles: gather makes the bundle that `collect --support` makes, which no flag of it makes alone.
func TestFormerNameOfSupportBundles(t *testing.T) {
	root := plantedNode(t).Root()
	now, file := gathered(t, root)
	former, _ := gatheredBy(t, root, "gather")
	got, want := slices.Sorted(maps.Keys(former)), slices.Sorted(maps.Keys(now))
	if diff := cmp.Diff(want, got); diff != "" || !slices.Contains(got, "status.json") {
		t.Errorf("gather has other files (-want +got):\n%s", diff)
	}
	for _, flag := range []string{"--mask", "--namespace=a", "--kubeconfig=a"} {
		if _, _, err := execute(t, "collect", flag, "--root", root, "--file", file); err == nil || exitCode(err) != exitUsage {
			t.Errorf("collect %s: %v, want a usage error", flag, err)
		}
	}
}
