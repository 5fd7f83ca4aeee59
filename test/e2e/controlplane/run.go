package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
	"github.com/kata-vfio/kata-vfio/test/internal/await"
	"github.com/kata-vfio/kata-vfio/test/internal/tail"
)

func pace() await.Pace { return await.Pace{Limit: 2 * time.Second, Pause: 50 * time.Millisecond} }

// errEnded is a component that ended by itself.
var errEnded = errors.New("it ended by itself")

// running is a component that was started.
type running struct {
	component
	process *process.Process
	log     string
}

// startAll starts the components in their order: each waits for those that it can't do without. They live as long as
// life, and must be ready within the other context.
func (p *ControlPlane) startAll(life, limited context.Context) error {
	for _, c := range []component{p.etcd(), p.apiServer()} {
		if err := p.startOne(life, limited, c); err != nil {
			return err
		}
	}
	group, limited := errgroup.WithContext(limited)
	for _, c := range []component{p.scheduler(), p.controllerManager()} {
		group.Go(func() error { return p.startOne(life, limited, c) })
	}
	return group.Wait()
}

// startOne starts a component and waits until it is ready.
func (p *ControlPlane) startOne(life, limited context.Context, c component) error {
	r, err := p.launch(life, c)
	if err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	if err := r.awaitReady(limited); err != nil {
		return fmt.Errorf("wait until %s is ready: %w", c.name, err)
	}
	return nil
}

// launch starts a component's process, which Stop ends from then on.
func (p *ControlPlane) launch(life context.Context, c component) (*running, error) {
	log, err := os.Create(p.LogFile(c.name))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the component has its own
	for _, at := range c.ports {
		at.release()
	}
	cmd := exec.CommandContext(life, p.binaries.Path(c.name), c.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	child, err := process.Start(cmd)
	if err != nil {
		return nil, err
	}
	r := &running{component: c, process: child, log: log.Name()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, r)
	return r, nil
}

// answers asks a URL, as the administrator, whether it answers 200.
func (p *ControlPlane) answers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := p.client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close() // the status is all
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answers %s", url, response.Status)
		}
		return nil
	}
}

// awaitReady asks until the component is ready, it ends or ctx does.
func (r *running) awaitReady(ctx context.Context) error {
	err := await.Until(ctx, pace(), r.ended, r.ready)
	if err == nil || errors.Is(err, errEnded) { // which quotes the log
		return err
	}
	return fmt.Errorf("%w\n%s", err, tail.File(r.log))
}

// ended is nil while the component runs.
func (r *running) ended() error {
	select {
	case <-r.process.Done():
		how := "exit status 0"
		if err := r.process.Err(); err != nil {
			how = err.Error()
		}
		return fmt.Errorf("%s: %w: %s\n%s", r.name, errEnded, how, tail.File(r.log))
	default:
		return nil
	}
}

// Restart kills a component, starts it again with the same flags after a while, and waits until it is ready. Until then
// nobody listens on its port.
func (p *ControlPlane) Restart(ctx context.Context, name string, down time.Duration) error {
	killed := p.Process(name)
	if killed == nil {
		return fmt.Errorf("restart %s: it does not run", name)
	}
	killed.Kill()
	c := p.forget(name)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(down):
	}
	return p.startOne(ctx, ctx, c)
}

// forget removes a component that has ended from the running ones, and returns it.
func (p *ControlPlane) forget(name string) component {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.running, func(r *running) bool { return r.name == name })
	c := p.running[i].component
	p.running = slices.Delete(p.running, i, i+1)
	return c
}
