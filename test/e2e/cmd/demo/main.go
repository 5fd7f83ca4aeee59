// Command demo tells the whole story: first without a cluster, in the lab machine (test/lab/cmd/demo), and while that
// plays it builds what a cluster needs. Then pods with claims run on a node in the lab machine, under a real control
// plane, and the node is audited.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

func main() {
	var f flags
	flag.StringVar(&f.machine, "machine", "bin/demo-machine", "the first part's command (test/lab/cmd/demo)")
	flag.StringVar(&f.chart, "chart", "deploy/helm/kata-vfio", "the chart to install")
	flag.StringVar(&f.example, "example", "deploy/examples/gpu-pod.yaml", "the pod to run")
	flag.StringVar(&f.networked, "network-example", "deploy/examples/gpu-and-vf-network.yaml", "the pod with a network to run")
	flag.StringVar(&f.joined, "partition-example", "deploy/examples/partition/pod.yaml", "the pod with two joined GPUs to run")
	flag.StringVar(&f.auditor, "auditor", "bin/kata-vfio-audit", "the audit's command, for the node")
	flag.StringVar(&f.sanitizer, "sanitizer", "bin/kata-vfio-sanitize", "the shipped sanitizer, for a VM")
	flag.StringVar(&f.plugins, "plugins", "bin", "the directory of kubectl's plugin")
	flag.StringVar(&f.report, "report", "bin/audit.html", "where to put the audit's page")
	flag.BoolVar(&f.clusterOnly, "cluster-only", false, "leave the first part out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, f)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// overview is the first screen.
const overview = `kata-vfio's demo, on virtual hardware in this machine. It changes nothing outside of the project's directory and its cache.

  Part 1, one minute: a node without a cluster
    bootstrap a bare node, plan a claim, bind its GPU to vfio-pci, boot a VM with it, reset it and prove it clean
  Part 2, about fifteen minutes: a cluster with that node
    install the chart; a tenant's pod gets a GPU in its VM; attacks are refused
    the security team's audit finds a fault, explains it, and confirms its fix; the device is reset and returned
    a pod gets two GPUs that NVLink joins, as one device in one VM: a partition of Fabric Manager
    a second tenant reads what the first has left in the GPU's memory; with a sanitizing stage, the next one reads zeros
    a pod gets a GPU, and a VF with an address; no other tenant gets a VF of the same PF meanwhile

The first run also builds a machine image and a control plane, up to half an hour on two cores; the cache keeps them.
Press Ctrl-C to stop: everything that the demo started ends with it.

`

type flags struct {
	machine, chart, example, networked, joined, auditor, sanitizer, plugins, report string
	clusterOnly                                                                     bool
}

// run plays the first part and builds beside it, then plays the second part. It reports a failed build after the first part,
// which does not need the build.
func run(ctx context.Context, f flags) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b := startBuild(ctx)
	if _, err := fmt.Fprint(os.Stdout, overview); err != nil {
		return errors.Join(fmt.Errorf("print the overview: %w", err), b.abandon())
	}
	if !f.clusterOnly {
		if err := playMachine(ctx, f.machine); err != nil {
			cancel()
			return errors.Join(err, b.abandon())
		}
	}
	if err := b.wait(os.Stdout); err != nil {
		return fmt.Errorf("build what a cluster needs: %w", err)
	}
	var err error
	if f.plugins, err = filepath.Abs(f.plugins); err != nil {
		return err
	}
	return newStory(os.Stdout, f).play(ctx)
}

// playMachine runs the first part as a process of its own, which takes its machine with it.
func playMachine(ctx context.Context, command string) error {
	cmd := exec.CommandContext(ctx, command)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := process.Run(cmd); err != nil {
		return fmt.Errorf("play the part without a cluster: %w", err)
	}
	return nil
}
