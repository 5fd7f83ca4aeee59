//go:build e2e

package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/wait"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

// callLimit is what the kubelet gives a plugin for one call.
const callLimit = 45 * time.Second

// plugin is a running kata-vfio-plugin: the command itself, except for the two files of testdata/overlay, by which a
// scripted kernel takes its writes.
type plugin struct {
	*process.Process
	dir     string // of its sockets and its log
	kubelet drapb.DRAPluginClient
}

// socketDir is a directory whose path is short enough for sockets.
func socketDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// startPlugin starts the plugin on a scripted node. Its runtime's socket is <dir>/nri.sock, the kubelet's
// <dir>/kubelet.sock; neither needs to be there.
func startPlugin(b *testing.B, k *sysfstest.Kernel, dir, node, kubeconfig string) *plugin {
	b.Helper()
	binary, registry := compilePlugin(b), filepath.Join(dir, "registry")
	if err := os.Mkdir(registry, 0o755); err != nil {
		b.Fatal(err)
	}
	p := &plugin{dir: dir}
	cmd := exec.CommandContext(b.Context(), binary, "run",
		"--root", k.Root(), "--node-name", node, "--kubeconfig", kubeconfig, "--metrics-listen", "127.0.0.1:0",
		"--plugin-dir", filepath.Join(dir, "plugin"), "--registry-dir", registry, "--metadata-cdi-dir", filepath.Join(dir, "cdi"),
		"--pod-resources-socket", p.podResources(), "--kubelet-pod-resources", p.kubeletSocket(),
		"--nri-socket", filepath.Join(dir, "nri.sock"))
	cmd.Env = []string{"KATA_VFIO_BENCH_KERNEL=" + serveKernel(b, k, dir)}
	p.Process = start(b, cmd, p.log())
	conn, err := grpc.NewClient("unix:"+filepath.Join(dir, "plugin", "dra.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	p.kubelet = drapb.NewDRAPluginClient(conn)
	return p
}

func (p *plugin) log() string           { return filepath.Join(p.dir, "log") }
func (p *plugin) kubeletSocket() string { return filepath.Join(p.dir, "kubelet.sock") }
func (p *plugin) podResources() string  { return filepath.Join(p.dir, "run", "pod-resources.sock") }

// start starts a process that ends with the benchmark, and has its output in a file.
func start(b *testing.B, cmd *exec.Cmd, log string) *process.Process {
	b.Helper()
	out, err := os.Create(log)
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close() // the process has its own
	cmd.Stdout, cmd.Stderr = out, out
	p, err := process.Start(cmd)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(p.Kill)
	b.Cleanup(func() {
		if b.Failed() {
			b.Logf("the log of %s ends:\n%s", cmd.Path, tail(log))
		}
	})
	return p
}

// eventually tries until it works. The benchmark ends with the last error.
func eventually(b *testing.B, what string, try func(context.Context) error) {
	b.Helper()
	var last error
	err := wait.PollUntilContextTimeout(b.Context(), 100*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = try(ctx)
		return last == nil, nil
	})
	if err != nil {
		b.Fatalf("wait until %s: %v", what, errors.Join(err, last))
	}
}

// tail is the end of a log, for people.
func tail(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// prepare prepares a tenant's claim as the kubelet does, one call for each pod.
func (p *plugin) prepare(ctx context.Context, t *tenant) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	answer, err := p.kubelet.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{t.named()}})
	if err != nil {
		return err
	}
	own := answer.GetClaims()[string(t.claim.UID)]
	if len(own.GetDevices()) != 1 {
		return fmt.Errorf("prepare claim %s: %s, devices %v", t.claim.Name, own.GetError(), own.GetDevices())
	}
	return nil
}

// unprepare takes it back.
func (p *plugin) unprepare(ctx context.Context, t *tenant) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	answer, err := p.kubelet.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{t.named()}})
	if err != nil {
		return err
	}
	own, there := answer.GetClaims()[string(t.claim.UID)]
	if !there || own.GetError() != "" {
		return fmt.Errorf("unprepare claim %s: answered %t, %s", t.claim.Name, there, own.GetError())
	}
	return nil
}

// named is the claim as the kubelet names it.
func (t *tenant) named() *drapb.Claim {
	return &drapb.Claim{Namespace: t.claim.Namespace, Name: t.claim.Name, Uid: string(t.claim.UID)}
}

// each does the work for all tenants, some at once as a node's pods start, and returns the time it took.
func each(b *testing.B, all []*tenant, work func(context.Context, *tenant) error) time.Duration {
	b.Helper()
	return timed(func() {
		if err := inParallel(b.Context(), all, work); err != nil {
			b.Fatal(err)
		}
	})
}
