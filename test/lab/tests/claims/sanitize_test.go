//go:build lab

package claims_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
	"github.com/kata-vfio/kata-vfio/test/lab/nested"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// Where the host has put the sanitizer, and where it is in the VM of a stage.
const (
	sanitizerHere = "/host/kata-vfio-sanitize"
	sanitizer     = "/bin/kata-vfio-sanitize"
)

// secret is what the first tenant leaves in its devices.
const secret = "tenant-a's 16 by"

// sanitizers is the document that plugin and controller get. The lab has no images: the digest is the program's.
const sanitizers = `
apiVersion: resource.kata-vfio.dev/v1alpha1
kind: Sanitizers
namespace: kata-vfio-sanitizing
deviceClass: sanitize.kata-vfio.dev
profiles:
- name: memory
  image: registry.example/kata-vfio-sanitize@%[1]s
  command: [` + sanitizer + `]
  args: [memory]
- name: nvme
  image: registry.example/kata-vfio-sanitize@%[1]s
  command: [` + sanitizer + `]
  args: [nvme]
`

// TestSanitizingStage follows a GPU's memory and a drive from tenant to tenant. The proof of a reset, without a stage, hands
// the first tenant's secret to the second. With stages, the third is refused until the shipped sanitizer has run in a VM of its
// own, and then reads zeros.
func TestSanitizingStage(t *testing.T) {
	devices := map[string]string{"memory": topology.GPU2, "nvme": topology.NVMe0}
	c := stage.Config()
	c.StateDir = strings.TrimPrefix(t.TempDir(), c.Root) // the marks are not for other tests
	c.Node = sanitizing(t, nil)

	tenantHas(t, stage.Open(t, c), "a", func(vm *nested.VM) {
		for _, place := range places(t, vm) {
			place.Write = []byte(secret)
			touch(t, vm, place)
		}
	})

	c.Node, c.Sanitizers = sanitizing(t, devices), readSanitizers(t)
	n := stage.Open(t, c)
	release := tenantHas(t, n, "b", func(vm *nested.VM) {
		for _, place := range places(t, vm) {
			if got := touch(t, vm, place); string(got) != secret {
				t.Errorf("without a stage the next tenant reads %q from %s, want %q: the reset does clear it, and what is said of it may change", got, place.File, secret)
			}
		}
	})
	t.Logf("without a stage tenant b has read %q", secret)

	for _, profile := range []string{"memory", "nvme"} {
		refuse(t, n, devices[profile])
		sanitizeIn(t, n, c, profile, devices[profile], release)
	}
	tenantHas(t, n, "c", func(vm *nested.VM) {
		for _, place := range places(t, vm) {
			if got := touch(t, vm, place); !bytes.Equal(got, make([]byte, len(secret))) {
				t.Errorf("after its stage %s has %q, want zeros", place.File, got)
			}
		}
	})
	refuse(t, n, topology.GPU2)
}

// sanitizing is a node config with the devices, each with a stage if its profile has one.
func sanitizing(t *testing.T, stages map[string]string) *v1alpha1.NodeConfig {
	t.Helper()
	cfg := &v1alpha1.NodeConfig{}
	for _, address := range []string{topology.GPU2, topology.NVMe0} {
		cfg.Devices = append(cfg.Devices, v1alpha1.DeviceRule{Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{stage.Address(t, address)}}})
		for profile, of := range stages {
			if of == address {
				cfg.Devices[len(cfg.Devices)-1].Sanitize = &v1alpha1.SanitizeRule{Profile: profile}
			}
		}
	}
	cfg.Default()
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func readSanitizers(t *testing.T) *v1alpha1.Sanitizers {
	t.Helper()
	program, err := os.ReadFile(sanitizerHere)
	if err != nil {
		t.Fatal(err)
	}
	s, err := v1alpha1.DecodeSanitizers(fmt.Appendf(nil, sanitizers, fmt.Sprintf("sha256:%x", sha256.Sum256(program))))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// tenantHas gives both devices to a tenant's VM while use runs, and returns how long their release took.
func tenantHas(t *testing.T, n *node.Node, tenant string, use func(vm *nested.VM)) (release time.Duration) {
	t.Helper()
	req := stage.Request(t, "tenant-"+tenant, topology.GPU2, topology.NVMe0)
	req.Namespace = "tenant-" + tenant
	mustPrepare(t, n, req)
	inVM(t, req.UID, nil, use)
	begin := time.Now()
	mustUnprepare(t, n, req.UID)
	return since(begin)
}

// inVM runs a VM with the devices of a claim while use runs.
func inVM(t *testing.T, uid string, files map[string]string, use func(vm *nested.VM)) {
	t.Helper()
	begin := time.Now()
	vm, err := nested.Start(t.Context(), nested.Config{Nodes: stage.Nodes(t, uid), MemoryMiB: 160, Files: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the VM of %s is up after %s", uid, since(begin))
	use(vm)
	if err := vm.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// places are where a tenant of a VM with both devices keeps its secret: far into the memory, and into the drive.
func places(t *testing.T, vm *nested.VM) []protocol.Bytes {
	t.Helper()
	report, err := vm.Report(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gpu := slices.IndexFunc(report.Functions, func(f protocol.Function) bool { return f.Vendor == "1002" })
	if gpu < 0 || len(report.NVMe) != 1 {
		t.Fatalf("the VM has %+v and %+v, want a GPU and a drive", report.Functions, report.NVMe)
	}
	return []protocol.Bytes{
		{File: filepath.Join("/sys/bus/pci/devices", report.Functions[gpu].Address, "resource0"), Offset: beyondScreen},
		{File: filepath.Join("/dev", report.NVMe[0].Name+"n1"), Offset: 1 << 20},
	}
}

// touch writes and reads as many bytes as the secret has.
func touch(t *testing.T, vm *nested.VM, place protocol.Bytes) []byte {
	t.Helper()
	place.Read = len(secret)
	got, err := vm.Bytes(t.Context(), place)
	if err != nil {
		t.Fatalf("%v\n%s", err, vm.Log())
	}
	return got
}

// refuse checks that no tenant gets the device before its stage.
func refuse(t *testing.T, n *node.Node, address string) {
	t.Helper()
	req := stage.Request(t, "refused", address)
	req.Namespace = "tenant-c"
	_, err := n.Preparer.Prepare(t.Context(), req)
	if refused := asRefusal(t, err); !refused.Has(rule.NotSanitized) {
		t.Errorf("%s: got %v, want a refusal with %s", address, refused, rule.NotSanitized)
	}
	t.Log(err)
}

// end is what a sanitizer leaves: its exit code, and what it wrote as its termination message.
type end struct {
	code    int
	message string
}

// sanitizeIn runs the stage of a device that waits for one, as the controller's pod does, decides it as the plugin does, and
// checks the history.
func sanitizeIn(t *testing.T, n *node.Node, c node.Config, profile, address string, release time.Duration) {
	t.Helper()
	p, ok := c.Sanitizers.Profile(profile)
	if !ok {
		t.Fatalf("no profile %s", profile)
	}
	begin := time.Now()
	mustPrepare(t, n, stageRequest(t, c.Sanitizers, profile, address))
	var ended end
	inVM(t, "stage-"+profile, map[string]string{sanitizer: sanitizerHere}, func(vm *nested.VM) { ended = runSanitizer(t, vm, &p) })
	mustUnprepare(t, n, "stage-"+profile)
	staged, decide := since(begin), time.Now()
	outcome := conclude(t, n, &p, ended)
	decided := since(decide)
	t.Logf("%s (%s) is free after %s: release %s, stage %s, decision %s", address, profile, release+staged+decided, release, staged, decided)
	if outcome.Verdict != sanitize.Clean {
		t.Fatalf("%s: the stage's verdict is %s because %q, want Clean", profile, outcome.Verdict, outcome.Reason)
	}
	told := lastEvent(t, c.LedgerDir(), ledger.Sanitize, stage.Address(t, address))
	if s := told.Sanitize; told.Result != ledger.OK || s.Image != p.Digest() || s.After == nil || s.After.UID != "tenant-b" || len(s.Checks) == 0 {
		t.Errorf("%s: the ledger has %+v, %+v; want a clean device after tenant-b by %s", profile, told, s, p.Digest())
	}
}

// runSanitizer runs a profile's command in the VM of a stage.
func runSanitizer(t *testing.T, vm *nested.VM, p *v1alpha1.Sanitizer) end {
	t.Helper()
	begin := time.Now()
	ended, err := vm.Run(t.Context(), slices.Concat(p.Command, p.Args)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: exit code %d in %s\n%s%s", p.Name, ended.Code, since(begin), ended.Stderr, ended.Stdout)
	message, err := vm.Bytes(t.Context(), protocol.Bytes{File: "/dev/termination-log", Read: sanitize.MaxMessage})
	if err != nil {
		t.Fatal(err)
	}
	return end{code: ended.Code, message: string(bytes.TrimRight(message, "\x00"))}
}

// stageRequest is the claim that the controller makes for a stage.
func stageRequest(t *testing.T, s *v1alpha1.Sanitizers, profile, address string) *claim.Request {
	t.Helper()
	req := stage.Request(t, "stage-"+profile, address)
	req.Namespace, req.Pods = s.Namespace, []claim.Pod{{UID: "pod-" + profile, Name: "sanitize-" + profile}}
	req.Devices[0].Class = s.DeviceClass
	return req
}

// conclude decides the only ended stage by what the sanitizer left.
func conclude(t *testing.T, n *node.Node, p *v1alpha1.Sanitizer, ended end) sanitize.Outcome {
	t.Helper()
	marks, err := n.Maintainer.EndedStages()
	if err != nil || len(marks) != 1 {
		t.Fatalf("ended stages: got %+v, %v, want one", marks, err)
	}
	mark := &marks[0]
	outcome := sanitize.Decide(expected(t, n, p, mark), sanitize.Observed{
		ImageID: p.Image, Terminated: true, ExitCode: ended.code, Message: ended.message,
	})
	if err := n.Maintainer.ConcludeStage(t.Context(), mark, outcome, p.Digest()); err != nil {
		t.Fatal(err)
	}
	return outcome
}

// expected is what the plugin knows of a stage before its end.
func expected(t *testing.T, n *node.Node, p *v1alpha1.Sanitizer, mark *journal.SanitizeMark) sanitize.Expected {
	t.Helper()
	accepted, missing, err := n.Maintainer.Accepted(mark)
	if err != nil {
		t.Fatal(err)
	}
	return sanitize.Expected{
		Digest: p.Digest(), Device: sanitize.NewDevice(mark.Identity.Vendor, mark.Identity.Device),
		Firmware: sanitize.FirmwarePolicy(p.Firmware), Accepted: accepted, Missing: missing,
	}
}

func since(begin time.Time) time.Duration { return time.Since(begin).Round(time.Millisecond) }
