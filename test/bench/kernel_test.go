//go:build labhost

package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/lab"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// BenchmarkPrepare times Prepare of one function on the lab's kernel against the same writes in C and against
// driverctl. What runs in the machine takes turns and reports medians; this end passes the ratios on.
func BenchmarkPrepare(b *testing.B) {
	m := startLab(b)
	build(b, filepath.Join(m.Share(), "loop"), "gcc", "-O2", "-static", "-o", filepath.Join(m.Share(), "loop"), "testdata/loop.c")
	for b.Loop() {
		runInLab(b, m, "echo 1 > /sys/bus/pci/devices/"+topology.PF0+"/sriov_numvfs; sleep 2; exec /host/bench "+
			topology.VF(topology.PF0, 0)+" "+topology.GPU0)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkVFSettings times all settings that igb has of a VF, imposed and restored by our code and by iproute2.
func BenchmarkVFSettings(b *testing.B) {
	m := startLab(b)
	for b.Loop() {
		pf := "/sys/bus/pci/devices/" + topology.PF0
		// Rates want the PF's link up.
		runInLab(b, m, "echo 1 > "+pf+"/sriov_numvfs; name=$(ls "+pf+"/net); ip link set $name up; "+
			"until [ $(cat "+pf+"/net/$name/carrier) = 1 ]; do sleep 0.1; done; exec /host/bench vf "+topology.PF0)
	}
	b.ReportMetric(0, "ns/op")
}

// startLab starts a machine with the guest's part of the benchmarks.
func startLab(b *testing.B) *lab.Machine {
	b.Helper()
	m, err := lab.Start(b.Context(), lab.Config{Progress: os.Stderr})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Stop)
	build(b, filepath.Join(m.Share(), "bench"), "go", "build", "-trimpath", "-o", filepath.Join(m.Share(), "bench"), "./guest")
	return m
}

// runInLab runs a script in the machine and passes on what it says.
func runInLab(b *testing.B, m *lab.Machine, script string) {
	b.Helper()
	out, err := m.Command(b.Context(), "sh", "-ec", script).CombinedOutput()
	if err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	fmt.Printf("%s", out)
	report(b, string(out))
}

// report passes the ratios on: "ADDRESS ratio NAME VALUE".
func report(b *testing.B, out string) {
	b.Helper()
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) != 4 || words[1] != "ratio" {
			continue
		}
		value, err := strconv.ParseFloat(words[3], 64)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(value, words[0]+":"+words[2])
	}
}

func build(b *testing.B, what, name string, args ...string) {
	b.Helper()
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("build %s: %v: %s", what, err, out)
	}
}
