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

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/test/bench/plot"
	"github.com/kata-vfio/kata-vfio/test/e2e/kata"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/image"
	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// BenchmarkKataPodStart says where the time goes from a pod's creation to its container in a VM of real Kata: the installation that
// KATA names (see make kata). Ours are prepare, which has the kernel's bind in it, and part of get; percent-prepare is the
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
	var phases []kata.Phase
	for b.Loop() {
		created := s.clock(b)
		s.start(b, fmt.Sprintf("timed-%d", runs), true)
		phases = s.timeline(b, created)
		for _, p := range phases {
			sums[p.Name] += p.Took
		}
		runs++
	}
	drawStart(b, phases)
	b.ReportMetric(0, "ns/op")
	var whole time.Duration
	for name, sum := range sums {
		whole += sum
		b.ReportMetric(float64(sum.Milliseconds())/float64(runs), "ms-"+name)
	}
	b.ReportMetric(float64(kernel.Milliseconds()), "ms-kernel-bind")
	b.ReportMetric(100*float64(sums["prepare"])/float64(whole), "percent-prepare")
}

// drawStart draws the phases of a pod's start, one in each row.
func drawStart(b *testing.B, phases []kata.Phase) {
	b.Helper()
	bars := make([]plot.Bar, len(phases))
	for i, p := range phases {
		begin := p.Began.Sub(phases[0].Began)
		bars[i] = plot.Bar{Row: p.Name, Phase: whose(p.Name), Start: begin, End: begin + p.Took}
	}
	drawn := plot.Waterfall("A pod's start in a VM of Kata, in the emulated lab", drawWidth, bars)
	if _, err := plot.Save(drawn, "pod-start", drawWidth, plot.WaterfallHeight(bars)); err != nil {
		b.Fatal(err)
	}
}

// whose says who is at work in a phase.
func whose(phase string) string {
	switch phase {
	case "scheduler":
		return "Kubernetes"
	case "prepare":
		return "kata-vfio"
	case "firmware", "agent":
		return "guest"
	}
	return "runtime"
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

// timeline returns the phases of the last pod's start.
func (s *starter) timeline(b *testing.B, created time.Time) []kata.Phase {
	b.Helper()
	prepared, sandbox := s.lastGiven(b)
	asked := s.lastAsked(b)
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
	return append([]kata.Phase{
		{Name: "scheduler", Began: created, Took: asked.Sub(created)},
		{Name: "prepare", Began: asked, Took: prepared.Sub(asked)},
		{Name: "runtime", Began: prepared, Took: phases[0].Began.Sub(prepared)},
	}, phases...)
}

// lastAsked returns when the ledger has the beginning of the Prepare that began last: after the locks and the scan.
func (s *starter) lastAsked(b *testing.B) time.Time {
	b.Helper()
	out, err := s.node.Command(b.Context(), "sh", "-c", "cat /var/lib/kata-vfio/ledger/*.jsonl").Output()
	if err != nil {
		b.Fatal(err)
	}
	var last time.Time
	for line := range bytes.Lines(out) {
		if e, err := ledger.DecodeEvent(bytes.TrimSpace(line)); err == nil && e.Type == ledger.Prepare {
			last = e.Time
		}
	}
	if last.IsZero() {
		b.Fatal("the ledger has no claim")
	}
	return last
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
