package main

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

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// askLimit limits one request. containerd answers in milliseconds; a node under load is slower.
const askLimit = 5 * time.Second

// askContainerd reads from the containerd at a socket, a path of the node, in the tree of fsys, through containerd's own client.
// It creates, changes and ends nothing. The error names the
// request that failed, and wraps [fs.ErrNotExist] if the socket does not exist. It can be repeated.
func askContainerd(ctx context.Context, fsys *sysfs.FS, socket string) (*facts.RunningContainerd, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	dir, err := fsys.OpenDir(strings.TrimPrefix(path.Dir(socket), "/"))
	if err != nil {
		return nil, fmt.Errorf("find containerd's socket %s: %w", socket, err)
	}
	defer dir.Close()
	if _, err := fsys.Stat(strings.TrimPrefix(socket, "/")); err != nil {
		return nil, fmt.Errorf("find containerd's socket %s: %w", socket, err)
	}
	// The path leads through the open directory: a socket's path has at most 108 bytes (unix(7), sun_path), which a long --root
	// exceeds, and no symbolic link of the tree leads out of it.
	c, err := dialContainerd(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), path.Base(socket)))
	if err != nil {
		return nil, fmt.Errorf("connect to containerd at %s: %w", socket, err)
	}
	r, err := askClient(ctx, c)
	if err := errors.Join(err, c.Close()); err != nil {
		return nil, fmt.Errorf("ask containerd at %s: %w", socket, err)
	}
	r.Socket = socket
	return r, nil
}

// dialContainerd returns a client. The path goes through an open directory, so that links in the tree can't lead out of it, and a
// long tree path fits into the socket's address. With a default runtime set, the client does not ask for one.
func dialContainerd(socket string) (*client.Client, error) {
	return client.New(socket, client.WithDefaultRuntime("io.containerd.runc.v2"), client.WithTimeout(askLimit))
}

func askClient(ctx context.Context, c *client.Client) (*facts.RunningContainerd, error) {
	version, err := c.Version(ctx)
	if err != nil {
		return nil, fmt.Errorf("its version: %w", err)
	}
	r := &facts.RunningContainerd{Version: version.Version}
	if r.Plugins, err = askPlugins(ctx, c); err != nil {
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
	r.Containers, err = askContainers(ctx, c)
	return r, err
}

func askPlugins(ctx context.Context, c *client.Client) ([]facts.ContainerdPlugin, error) {
	answer, err := c.IntrospectionService().Plugins(ctx)
	if err != nil {
		return nil, fmt.Errorf("its plugins: %w", err)
	}
	all := make([]facts.ContainerdPlugin, 0, len(answer.Plugins))
	for _, p := range answer.Plugins {
		all = append(all, facts.ContainerdPlugin{Type: p.Type, ID: p.ID, Error: p.InitErr.GetMessage()})
	}
	return all, nil
}

// askContainers returns the containers with a process in all namespaces.
func askContainers(ctx context.Context, c *client.Client) ([]facts.Container, error) {
	spaces, err := c.NamespaceService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("its namespaces: %w", err)
	}
	all := []facts.Container{}
	for _, space := range spaces {
		some, err := askNamespace(namespaces.WithNamespace(ctx, space), c)
		if err != nil {
			return nil, fmt.Errorf("containers of its namespace %s: %w", space, err)
		}
		for _, one := range some {
			one.Space = space
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b facts.Container) int {
		return cmp.Or(strings.Compare(a.Space, b.Space), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// askNamespace returns the containers with a process in the namespace of ctx.
func askNamespace(ctx context.Context, c *client.Client) ([]facts.Container, error) {
	running, err := askProcesses(ctx, c)
	if err != nil {
		return nil, err
	}
	kept, err := c.ContainerService().List(ctx)
	if err != nil {
		return nil, err
	}
	var some []facts.Container
	for i := range kept {
		k := &kept[i]
		pid, ok := running[k.ID]
		// containerd keeps a container whose process has ended until it is deleted.
		if !ok || k.Spec == nil {
			continue
		}
		one, err := facts.DescribeContainer(k.Spec.GetValue())
		if err != nil {
			return nil, fmt.Errorf("container %s: %w", k.ID, err)
		}
		one.ID, one.PID, one.Runtime = k.ID, pid, k.Runtime.Name
		some = append(some, one)
	}
	return some, nil
}

// askProcesses returns the first process of each container that has not ended.
func askProcesses(ctx context.Context, c *client.Client) (map[string]int, error) {
	answer, err := c.TaskService().List(ctx, &tasks.ListTasksRequest{})
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	pids := map[string]int{}
	for _, t := range answer.Tasks {
		// A task stays in the list after its process ended, until it is deleted. Its PID may be another process by then.
		if t.Status != task.Status_STOPPED {
			pids[t.ID] = int(t.Pid)
		}
	}
	return pids, nil
}
