// Package queue runs Kueue's controller beside a control plane of the tests.
package queue

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/process"
	"github.com/kata-vfio/kata-vfio/test/internal/await"
	"github.com/kata-vfio/kata-vfio/test/internal/tail"
)

// metricsCerts is where Kueue's controller looks for its metrics' certificate; no option names another place.
const metricsCerts = "etc/kueue/metrics/certs"

// startLimit is for a controller that is built.
const startLimit = time.Minute

// Config is what the controller is started with.
type Config struct {
	// Resources is the section "resources" of Kueue's configuration, such as its deviceClassMappings.
	Resources map[string]any
	// Dir is an empty directory for its files, which the caller removes.
	Dir string
	// Progress takes lines about the build, if there is one; nil drops them.
	Progress io.Writer
}

// Kueue is a running controller.
type Kueue struct {
	plane   *controlplane.ControlPlane
	process *process.Process
	log     string
}

// Start builds what is not cached, installs Kueue's CustomResourceDefinitions and the webhooks of its own objects and
// of Jobs, and runs the controller as the administrator until Stop. The controller runs in a root directory of its own,
// since one of its files has a fixed place: that needs root, or a system that lets users have namespaces.
func Start(ctx context.Context, plane *controlplane.ControlPlane, c Config) (*Kueue, error) {
	set, err := binaries.Ensure(ctx, binaries.Config{Modules: []binaries.Module{binaries.Kueue}, Progress: c.Progress})
	if err != nil {
		return nil, fmt.Errorf("start Kueue: %w", err)
	}
	k := &Kueue{plane: plane, log: filepath.Join(c.Dir, "kueue.log")}
	if err := k.start(ctx, set.Path("kueue"), c); err != nil {
		k.Stop() //nolint:contextcheck // what Start has made goes, also where ctx is over
		return nil, fmt.Errorf("start Kueue: %w", err)
	}
	return k, nil
}

func (k *Kueue) start(ctx context.Context, binary string, c Config) error {
	at, err := freePorts(2)
	if err != nil {
		return err
	}
	webhook, probe := at[0], at[1]
	if err := k.files(binary, c, webhook, probe); err != nil {
		return err
	}
	if err := k.install(ctx, webhook); err != nil {
		return err
	}
	if err := k.run(ctx, c.Dir); err != nil {
		return err
	}
	return k.awaitReady(ctx, probe)
}

// files makes the controller's root directory.
func (k *Kueue) files(binary string, c Config, webhook, probe int) error {
	cert, key := k.plane.ServingFiles()
	config, err := configuration(c.Resources, webhook, probe)
	if err != nil {
		return err
	}
	kubeconfig, err := k.plane.Kubeconfig(controlplane.Admin(), "")
	if err != nil {
		return err
	}
	certs := filepath.Join(c.Dir, metricsCerts)
	for _, dir := range []string{certs, filepath.Join(c.Dir, "tmp")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for path, text := range map[string][]byte{"config.yaml": config, "kubeconfig": kubeconfig} {
		if err := os.WriteFile(filepath.Join(c.Dir, path), text, 0o600); err != nil {
			return err
		}
	}
	for to, from := range map[string]string{
		filepath.Join(certs, "tls.crt"): cert, filepath.Join(certs, "tls.key"): key, filepath.Join(c.Dir, "kueue"): binary,
	} {
		if err := copyFile(to, from); err != nil {
			return err
		}
	}
	return nil
}

// configuration is Kueue's configuration file. Its webhook has the metrics' certificate.
func configuration(resources map[string]any, webhook, probe int) ([]byte, error) {
	return yaml.Marshal(map[string]any{
		"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
		"health":                 map[string]any{"healthProbeBindAddress": address(probe)},
		"metrics":                map[string]any{"bindAddress": "0"},
		"webhook":                map[string]any{"host": loopback, "port": webhook, "certDir": "/" + metricsCerts},
		"internalCertManagement": map[string]any{"enable": false},
		"leaderElection":         map[string]any{"leaderElect": false},
		"integrations":           map[string]any{"frameworks": []string{"batch/job"}},
		"resources":              resources,
	})
}

func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o700)
}

// run starts the controller.
func (k *Kueue) run(ctx context.Context, root string) error {
	log, err := os.Create(k.log)
	if err != nil {
		return err
	}
	defer log.Close() // the child has its own
	cmd := exec.CommandContext(ctx, "/kueue", "--config=/config.yaml", "--feature-gates=VisibilityOnDemand=false")
	cmd.Dir, cmd.Env = "/", []string{"KUBECONFIG=/kubeconfig", "HOME=/", "TMPDIR=/tmp"}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = withRoot(root)
	k.process, err = process.Start(cmd)
	return err
}

// withRoot gives a process a root directory. Without root's rights, this takes a user namespace.
func withRoot(dir string) *syscall.SysProcAttr {
	attributes := &syscall.SysProcAttr{Chroot: dir}
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		attributes.Cloneflags = syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		attributes.GidMappings = []syscall.SysProcIDMap{{HostID: gid, Size: 1}}
	}
	return attributes
}

// awaitReady waits until the controller's probe says that it is ready.
func (k *Kueue) awaitReady(ctx context.Context, probe int) error {
	limited, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	err := await.Until(limited, await.Pace{Limit: 2 * time.Second, Pause: 100 * time.Millisecond}, k.Lost, func(ctx context.Context) error {
		return k.answers(ctx, "http://"+address(probe)+"/readyz")
	})
	if err != nil {
		return fmt.Errorf("wait until it is ready: %w", err)
	}
	return nil
}

func (k *Kueue) answers(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close() // it was only read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// Stop ends the controller and removes its webhooks, without which nobody could make Jobs any more. Its
// CustomResourceDefinitions stay.
func (k *Kueue) Stop() {
	k.uninstall()
	if k.process != nil {
		k.process.Kill()
	}
}

// Lost is nil while the controller runs; otherwise it quotes the end of its log.
func (k *Kueue) Lost() error {
	select {
	case <-k.process.Done():
		return fmt.Errorf("Kueue ended by itself: %w\n%s", k.process.Err(), tail.File(k.log))
	default:
		return nil
	}
}

const loopback = "127.0.0.1"

func address(port int) string { return fmt.Sprintf("%s:%d", loopback, port) }

// freePorts returns so many ports that nobody listens on.
func freePorts(count int) ([]int, error) {
	var free []int
	for range count {
		l, err := net.Listen("tcp", address(0))
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // nothing was accepted
		free = append(free, l.Addr().(*net.TCPAddr).Port)
	}
	return free, nil
}
