// Program askcri asks a container runtime's CRI for its version, as the kubelet does when it starts, and fails until it is answered. containerd
// serves its own API before it has recovered its sandboxes, and CRI only then.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

// limit is for an answer. A runtime that is not ready says so at once.
const limit = 10 * time.Second

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: askcri SOCKET")
		os.Exit(2)
	}
	if err := ask(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// ask does without CRI's own messages: an empty request is valid, and of the answer only that there is one counts.
func ask(socket string) error {
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("ask the runtime at %s: %w", socket, err)
	}
	defer conn.Close() // the program ends
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := conn.Invoke(ctx, "/runtime.v1.RuntimeService/Version", &emptypb.Empty{}, &emptypb.Empty{}); err != nil {
		return fmt.Errorf("ask the runtime at %s for its version: %w", socket, err)
	}
	return nil
}
