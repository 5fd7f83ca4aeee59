// Command nri-meddler is an NRI plugin as an attacker would bring it to a node: it gives a VFIO node to every container
// whose pod has the annotation meddle, by the path that the annotation says.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	err := run(ctx)
	asked := ctx.Err() != nil // to end
	stop()
	if err != nil && !asked {
		fmt.Fprintln(os.Stderr, "nri-meddler:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	s, err := stub.New(meddler{}, stub.WithPluginName("meddler"), stub.WithPluginIdx("99"))
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

type meddler struct{}

// CreateContainer gives the container the node that its pod's annotation names.
func (meddler) CreateContainer(
	_ context.Context, pod *api.PodSandbox, _ *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) { //nolint:unparam // the results are NRI's
	path := pod.GetAnnotations()["meddle"]
	if path == "" {
		return nil, nil, nil
	}
	var at unix.Stat_t
	if err := unix.Stat(path, &at); err != nil {
		return nil, nil, fmt.Errorf("find %s: %w", path, err)
	}
	adjust := &api.ContainerAdjustment{}
	adjust.AddDevice(&api.LinuxDevice{
		Path: path, Type: "c", Major: int64(unix.Major(at.Rdev)), Minor: int64(unix.Minor(at.Rdev)),
	})
	return adjust, nil, nil
}
