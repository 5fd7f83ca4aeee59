//go:build e2e

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/kata"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// BenchmarkKataPodStart says where the time goes from a pod's creation to its container in a VM of real Kata: the installation that
// KATA names (see make kata). Ours are request, which has the kernel's bind in it, and part of get; percent-request is the
// former's share of the whole. The guest's first breath is between firmware and agent.
func BenchmarkKataPodStart(b *testing.B) {
	source := kata.SourceOf(os.Getenv)
	if source.Dir == "" {
		b.Skip("KATA names no installation of Kata: make bench KATA=/opt/kata")
	}
	install, err := kata.Find(b.Context(), source, kata.Go)
	if err != nil {
		b.Fatal(err)
	}
	config := node.Config{Kata: &install}
	config.Machine.VFIO = image.IOMMUFD
	config.Machine.KernelArgs = []string{"iommu=nopt"} // what bootstrap asks for; the machine has no boot loader that could add it
	s := newStarter(b, config)
	s.reports = true
	kernel := s.kernel(b)
	sums, runs := map[string]time.Duration{}, 0
	for b.Loop() {
		created := s.clock(b)
		s.start(b, fmt.Sprintf("timed-%d", runs), true)
		for name, took := range s.timeline(b, created) {
			sums[name] += took
		}
		runs++
	}
	b.ReportMetric(0, "ns/op")
	var whole time.Duration
	for name, sum := range sums {
		whole += sum
		b.ReportMetric(float64(sum.Milliseconds())/float64(runs), "ms-"+name)
	}
	b.ReportMetric(float64(kernel.Milliseconds()), "ms-kernel-bind")
	b.ReportMetric(100*float64(sums["request"])/float64(whole), "percent-request")
}

// clock is the node's.
func (s *starter) clock(b *testing.B) time.Time {
	b.Helper()
	out, err := s.node.Command(b.Context(), "date", "+%s%N").Output()
	if err != nil {
		b.Fatal(err)
	}
	nanoseconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Unix(0, nanoseconds)
}

// given is what the plugin logs of a pod's start.
type given struct {
	Time    time.Time `json:"time"`
	Message string    `json:"msg"`
	Sandbox string    `json:"sandbox"`
}

// timeline is how long each phase of the last pod's start took.
func (s *starter) timeline(b *testing.B, created time.Time) map[string]time.Duration {
	b.Helper()
	prepared, sandbox := s.lastGiven(b)
	log, err := os.Open(s.node.LogFile("syslog"))
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close() // it was only read
	phases, err := kata.Phases(log, sandbox)
	if err == nil {
		phases, err = kata.WithFirstBreath(phases, s.guestBegan(b))
	}
	if err != nil {
		b.Fatal(err)
	}
	took := map[string]time.Duration{"request": prepared.Sub(created), "runtime": phases[0].Began.Sub(prepared)}
	for _, p := range phases {
		took[p.Name] = p.Took
	}
	return took
}

// lastGiven is when the plugin had prepared the claim that it prepared last, and the sandbox that it gave devices to last.
func (s *starter) lastGiven(b *testing.B) (prepared time.Time, sandbox string) {
	b.Helper()
	out, err := s.node.Command(b.Context(), "sh", "-c", "cat /var/log/pods/"+node.PluginNamespace+"_*/plugin/*.log").Output()
	if err != nil {
		b.Fatal(err)
	}
	for line := range bytes.Lines(out) {
		var g given
		if _, text, ok := bytes.Cut(line, []byte("stderr F ")); !ok || json.Unmarshal(text, &g) != nil {
			continue // not one of slog's
		}
		switch g.Message {
		case "claim prepared":
			prepared = g.Time
		case "devices given":
			sandbox = g.Sandbox
		}
	}
	return prepared, sandbox
}

// guestBegan is when the guest's kernel began, by the node's clock: when the last pod's container printed its report, less the uptime in it. The
// kernel of the guest has a clock of its own.
func (s *starter) guestBegan(b *testing.B) time.Time {
	b.Helper()
	stamp, text, _ := bytes.Cut(s.printed, []byte(" "))
	printed, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		b.Fatal(err)
	}
	var report protocol.Report
	if err := json.Unmarshal(text, &report); err != nil {
		b.Fatal(err)
	}
	return printed.Add(-time.Duration(report.Uptime * float64(time.Second)))
}

// print keeps what a pod has printed: a report with the time of the line, which comes some time after the pod runs.
func (s *starter) print(b *testing.B, pod string) {
	b.Helper()
	poll(b, func(ctx context.Context) (bool, error) {
		var err error
		s.printed, err = s.client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{Timestamps: true}).DoRaw(ctx)
		_, text, _ := bytes.Cut(s.printed, []byte(" "))
		return json.Valid(text), err
	})
}
