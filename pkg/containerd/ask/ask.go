// Package ask reads the configuration and the containers of a running containerd, through containerd's own client. It
// creates, changes and ends nothing.
package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"

	"github.com/kata-vfio/kata-vfio/pkg/containerd"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// Limit limits one request. containerd answers in milliseconds; a node under load is slower.
const Limit = 5 * time.Second

// Containerd reads from the containerd at a socket, a path of the node, in the tree of fsys. The error names the
// request that failed, and wraps [fs.ErrNotExist] if the socket does not exist. It can be repeated.
func Containerd(ctx context.Context, fsys *sysfs.FS, socket string) (*containerd.Running, error) {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	dir, err := fsys.OpenDir(strings.TrimPrefix(path.Dir(socket), "/"))
	if err != nil {
		return nil, fmt.Errorf("find containerd's socket %s: %w", socket, err)
	}
	defer dir.Close()
	if _, err := fsys.Stat(strings.TrimPrefix(socket, "/")); err != nil {
		return nil, fmt.Errorf("find containerd's socket %s: %w", socket, err)
	}
	c, err := dial(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), path.Base(socket)))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd at %s: %w", socket, err)
	}
	r, err := ask(ctx, c)
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, fmt.Errorf("ask containerd at %s: %w", socket, err)
	}
	r.Socket = socket
	return r, nil
}

// dial returns a client. The path goes through an open directory, so that links in the tree can't lead out of it, and a
// long tree path fits into the socket's address. With a default runtime set, the client does not ask for one.
func dial(socket string) (*client.Client, error) {
	return client.New(socket, client.WithDefaultRuntime("io.containerd.runc.v2"), client.WithTimeout(Limit))
}

func ask(ctx context.Context, c *client.Client) (*containerd.Running, error) {
	version, err := c.Version(ctx)
	if err != nil {
		return nil, fmt.Errorf("its version: %w", err)
	}
	r := &containerd.Running{Version: version.Version}
	if r.Plugins, err = plugins(ctx, c); err != nil {
		return nil, err
	}
	if r.HasCRI() {
		conn, ok := c.Conn().(grpc.ClientConnInterface)
		if !ok {
			return nil, errors.New("its CRI: the client has no gRPC connection")
		}
		if r.CRI, err = askCRI(ctx, conn); err != nil {
			return nil, err
		}
	}
	r.Containers, err = containers(ctx, c)
	return r, err
}

func plugins(ctx context.Context, c *client.Client) ([]containerd.Plugin, error) {
	answer, err := c.IntrospectionService().Plugins(ctx)
	if err != nil {
		return nil, fmt.Errorf("its plugins: %w", err)
	}
	all := make([]containerd.Plugin, 0, len(answer.Plugins))
	for _, p := range answer.Plugins {
		all = append(all, containerd.Plugin{Type: p.Type, ID: p.ID, Error: p.InitErr.GetMessage()})
	}
	return all, nil
}

// containers returns the containers with a process in all namespaces.
func containers(ctx context.Context, c *client.Client) ([]containerd.Container, error) {
	spaces, err := c.NamespaceService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("its namespaces: %w", err)
	}
	all := []containerd.Container{}
	for _, space := range spaces {
		some, err := listContainers(namespaces.WithNamespace(ctx, space), c)
		if err != nil {
			return nil, fmt.Errorf("containers of its namespace %s: %w", space, err)
		}
		for _, one := range some {
			one.Space = space
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b containerd.Container) int {
		return cmp.Or(strings.Compare(a.Space, b.Space), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// listContainers returns those in the namespace of ctx.
func listContainers(ctx context.Context, c *client.Client) ([]containerd.Container, error) {
	running, err := processes(ctx, c)
	if err != nil {
		return nil, err
	}
	kept, err := c.ContainerService().List(ctx)
	if err != nil {
		return nil, err
	}
	var some []containerd.Container
	for i := range kept {
		k := &kept[i]
		pid, ok := running[k.ID]
		if !ok || k.Spec == nil {
			continue
		}
		one, err := containerd.Describe(k.Spec.GetValue())
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", k.ID, err)
		}
		one.ID, one.PID, one.Runtime = k.ID, pid, k.Runtime.Name
		some = append(some, one)
	}
	return some, nil
}

// processes returns the first process of each container that has not ended.
func processes(ctx context.Context, c *client.Client) (map[string]int, error) {
	answer, err := c.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	pids := map[string]int{}
	for _, t := range answer.Tasks {
		if t.Status != task.Status_STOPPED {
			pids[t.ID] = int(t.Pid)
		}
	}
	return pids, nil
}
