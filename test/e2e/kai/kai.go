// Package kai runs the scheduler KAI beside a control plane of the tests, from programs that somebody has built.
package kai

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/process"
	"github.com/kata-vfio/kata-vfio/test/internal/tail"
)

const (
	// Scheduler is the schedulerName of pods that KAI schedules.
	Scheduler = "kai-scheduler"
	// QueueLabel is the label of those pods with a queue.
	QueueLabel = "kai.scheduler/queue"
	// AnyQueue is a queue without limits.
	AnyQueue = "any"
	loopback = "127.0.0.1"
)

// Config is what KAI is started from.
type Config struct {
	// Dir has the programs scheduler, binder and podgrouper of one version of KAI (go build -o DIR/ ./cmd/scheduler, and so on), and its
	// CustomResourceDefinitions in DIR/crds (deployments/kai-scheduler/crds).
	Dir string
	// Logs is a directory for the programs' logs.
	Logs string
}

// KAI is a running scheduler with its binder and podgrouper. Its other programs only report.
type KAI struct {
	programs []*program
}

// program is one of KAI's.
type program struct {
	name, log string
	process   *process.Process
}

// Start installs KAI's CustomResourceDefinitions and what its chart would, and runs it as the administrator until Stop.
func Start(ctx context.Context, plane *controlplane.ControlPlane, c Config) (*KAI, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := install(ctx, plane, filepath.Join(c.Dir, "crds")); err != nil {
		return nil, fmt.Errorf("install KAI: %w", err)
	}
	kubeconfig, err := plane.KubeconfigFile(controlplane.Admin(), "")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	k := &KAI{}
	for _, args := range [][]string{
		{"podgrouper", "--metrics-bind-address=0", "--health-probe-bind-address=0"},
		{"binder", "--metrics-bind-address=0", "--health-probe-bind-address=0"},
		{"scheduler", fmt.Sprintf("--listen-address=%s:%d", loopback, ports[0]), fmt.Sprintf("--plugin-server-port=%d", ports[1]), "--log-json"},
	} {
		if err := k.run(ctx, c, kubeconfig, args); err != nil {
			k.Stop()
			return nil, fmt.Errorf("start KAI's %s: %w", args[0], err)
		}
	}
	return k, nil
}

// check refuses a directory that lacks something, with the way to make it.
func (c Config) check() error {
	var errs []error
	for _, name := range []string{"scheduler", "binder", "podgrouper", "crds"} {
		if _, err := os.Stat(filepath.Join(c.Dir, name)); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("%s is no directory of KAI: %w; in its sources, run go build -o DIR/ ./cmd/scheduler ./cmd/binder ./cmd/podgrouper, and copy "+
			"deployments/kai-scheduler/crds to DIR/crds", c.Dir, errors.Join(errs...))
	}
	return nil
}

// install applies the CustomResourceDefinitions, and the objects that KAI needs.
func install(ctx context.Context, plane *controlplane.ControlPlane, crds string) error {
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(files) == 0 {
		return errors.Join(fmt.Errorf("%s has no CustomResourceDefinitions", crds), err)
	}
	definitions := make([]string, 0, 2*len(files))
	for _, f := range files {
		definitions = append(definitions, "-f", f)
	}
	if _, err := plane.Kubectl(ctx, append([]string{"apply", "--server-side"}, definitions...)...); err != nil {
		return err
	}
	if _, err := plane.Kubectl(ctx, append([]string{"wait", "--for=condition=Established", "--timeout=30s"}, definitions...)...); err != nil {
		return err
	}
	_, err = plane.KubectlInput(ctx, strings.NewReader(objects+Queue("all", "", -1, -1)+Queue(AnyQueue, "all", -1, -1)), "apply", "-f", "-")
	return err
}

// objects are those of KAI's chart that its programs ask for.
const objects = `
apiVersion: v1
kind: Namespace
metadata: {name: kai-scheduler}
---
apiVersion: v1
kind: Namespace
metadata: {name: kai-resource-reservation}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: kai-resource-reservation, namespace: kai-resource-reservation}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: train}
value: 50
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: inference}
value: 125
`

// Queue is a queue below another, or none. It gets back its quota of GPUs from others, and has no more than its limit; -1 is no end.
func Queue(name, parent string, quota, limit int) string {
	if parent != "" {
		parent = "parentQueue: " + parent + ", "
	}
	return fmt.Sprintf(`---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: %s}
spec:
  {%sresources: {cpu: {limit: -1, overQuotaWeight: 1, quota: -1}, memory: {limit: -1, overQuotaWeight: 1, quota: -1}, gpu: {limit: %d, overQuotaWeight: 1, quota: %d}}}
`, name, parent, limit, quota)
}

// run starts a program.
func (k *KAI) run(ctx context.Context, c Config, kubeconfig string, args []string) error {
	p := &program{name: args[0], log: filepath.Join(c.Logs, args[0]+".log")}
	log, err := os.Create(p.log)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := exec.CommandContext(ctx, filepath.Join(c.Dir, args[0]), args[1:]...)
	cmd.Dir, cmd.Env = c.Logs, []string{"KUBECONFIG=" + kubeconfig, "HOME=" + c.Logs, "TMPDIR=" + c.Logs, "PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = log, log
	if p.process, err = process.Start(cmd); err == nil {
		k.programs = append(k.programs, p)
	}
	return err
}

// Lost is nil while all programs run. It quotes the ends of the logs of those that ended.
func (k *KAI) Lost() error {
	var errs []error
	for _, p := range k.programs {
		select {
		case <-p.process.Done():
			errs = append(errs, fmt.Errorf("KAI's %s ended by itself: %w\n%s", p.name, p.process.Err(), tail.File(p.log)))
		default:
		}
	}
	return errors.Join(errs...)
}

// Stop ends the programs. What they and Start have made in the API server stays.
func (k *KAI) Stop() {
	for _, p := range k.programs {
		p.process.Kill()
	}
}

// freePorts returns so many ports that nobody listens on.
func freePorts(count int) ([]int, error) {
	var free []int
	for range count {
		l, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // nothing was accepted
		free = append(free, l.Addr().(*net.TCPAddr).Port)
	}
	return free, nil
}
