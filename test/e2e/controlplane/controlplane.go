// Package controlplane runs a real Kubernetes control plane for tests: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler as child processes on 127.0.0.1, without a node.
//
// Authorization (Node and RBAC), admission and feature gates are those that Kubernetes has by default, with
// NodeRestriction added as in every cluster of kubeadm. So a policy, a role or a DeviceClass that works here works in
// a cluster. What is missing is what a cluster adds: networking, DNS, a kubelet. A Node object can be made by hand, and
// the scheduler allocates claims to it.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
	"github.com/kata-vfio/kata-vfio/test/e2e/process"
	"github.com/kata-vfio/kata-vfio/test/internal/scratch"
)

// LabHost is the address of this host's loopback in a lab machine: what QEMU's user network calls it.
const LabHost = "10.0.2.2"

// startLimit is for a start with built binaries. Ten seconds are usual.
const startLimit = 2 * time.Minute

// Config is what differs from a default control plane. The zero value is one.
type Config struct {
	// FeatureGates are set for the API server, the scheduler and the controller manager. Those not named keep
	// their defaults.
	FeatureGates map[string]bool
	// RuntimeConfig turns APIs on or off, such as "resource.k8s.io/v1alpha3": true.
	RuntimeConfig map[string]bool
	// Progress takes lines about the build, if there is one, and the start; nil drops them.
	Progress io.Writer
}

// ControlPlane is a running control plane. Its methods may be called from several goroutines.
type ControlPlane struct {
	config    Config
	binaries  *binaries.Set
	dir       string
	authority *authority
	ports     ports
	client    *http.Client // the administrator's, for probes

	mu      sync.Mutex
	running []*running // in the order of their start
	stop    sync.Once
}

// Start builds what is not cached (minutes, the first time; see binaries.Ensure), starts the components on free ports
// and waits until they are ready and pods can be created in the namespace "default". Several control planes may run
// side by side, in one process or several. It needs no root. The components end with Stop, with ctx and with this
// process, even if that is killed; then the next Start removes what is left of their files.
func Start(ctx context.Context, c Config) (*ControlPlane, error) {
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	set, err := binaries.Ensure(ctx, binaries.Config{Modules: []binaries.Module{binaries.Kube}, Progress: c.Progress})
	if err != nil {
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	dir, err := scratch.New(os.TempDir(), "kata-vfio-controlplane-")
	if err != nil {
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	p := &ControlPlane{config: c, binaries: set, dir: dir}
	if err := p.start(ctx); err != nil {
		p.Stop()
		return nil, fmt.Errorf("start a control plane: %w", err)
	}
	context.AfterFunc(ctx, p.Stop)
	return p, nil
}

func (p *ControlPlane) start(ctx context.Context) error {
	begin := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready after %s", startLimit))
	defer cancel()
	if err := p.prepare(); err != nil {
		return err
	}
	if err := p.startAll(ctx, limited); err != nil {
		return err
	}
	// The reader of progress is not part of the start.
	_, _ = fmt.Fprintf(p.config.Progress, "control plane up after %.1fs: %s, logs in %s\n",
		time.Since(begin).Seconds(), p.Server(loopback), p.logDir())
	return nil
}

// prepare makes the files that the components start from, and chooses their ports.
func (p *ControlPlane) prepare() error {
	var err error
	if p.ports, err = choosePorts(); err != nil {
		return err
	}
	if p.authority, err = newAuthority(); err != nil {
		return fmt.Errorf("make a certificate authority: %w", err)
	}
	if err := os.Mkdir(p.logDir(), 0o755); err != nil {
		return err
	}
	if err := p.writePKI(); err != nil {
		return err
	}
	for _, u := range []User{Admin(), scheduler(), controllerManager()} {
		if _, err := p.KubeconfigFile(u, ""); err != nil {
			return err
		}
	}
	config, err := p.RESTConfig(Admin())
	if err != nil {
		return err
	}
	p.client, err = rest.HTTPClientFor(config)
	return err
}

// Stop ends all components at once and removes their files. Their data is thrown away, so none is asked to end by
// itself. It may be called again.
func (p *ControlPlane) Stop() {
	p.stop.Do(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, r := range p.running {
			r.process.Kill()
		}
		if p.client != nil {
			p.client.CloseIdleConnections()
		}
		p.ports.release()
		_ = os.RemoveAll(p.dir) // nothing refers to it any more; the next Start sweeps what is left
	})
}

// Lost returns nil while all components run. Otherwise it names those that ended, with the ends of their logs.
func (p *ControlPlane) Lost() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, r := range p.running {
		errs = append(errs, r.ended())
	}
	return errors.Join(errs...)
}

// Process is the process of a component, such as "kube-apiserver"; nil for one that does not run.
func (p *ControlPlane) Process(component string) *process.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.running {
		if r.name == component {
			return r.process
		}
	}
	return nil
}

// Dir is the directory of all its files. Every component has it in its command line. Stop removes it.
func (p *ControlPlane) Dir() string { return p.dir }

// LogFile is the log of a component, such as "kube-scheduler". Stop removes it.
func (p *ControlPlane) LogFile(component string) string {
	return filepath.Join(p.logDir(), component+".log")
}

// Server is the API server's URL for a client that reaches this host's loopback by that address: 127.0.0.1 here,
// LabHost in a lab machine. The server's certificate is valid for both.
func (p *ControlPlane) Server(host string) string {
	return fmt.Sprintf("https://%s:%d", host, p.ports.apiServer.number)
}

// CA is the certificate of the authority that signed the API server's and all clients', in PEM.
func (p *ControlPlane) CA() []byte { return p.authority.certPEM }

// ServingFiles are the files of a certificate for servers on 127.0.0.1 that the same authority signed, and of its key.
func (p *ControlPlane) ServingFiles() (cert, key string) {
	return p.file(servingCertFile), p.file(servingKeyFile)
}

func (p *ControlPlane) logDir() string { return filepath.Join(p.dir, "log") }
