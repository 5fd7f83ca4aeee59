package plugin_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// work is a node that resets in each call, and fails with err.
type work struct {
	tracer *plugin.Tracer
	err    error
}

// do is the work of a call.
func (w *work) do(ctx context.Context, kind prepare.CallKind, sandbox string) error {
	c := prepare.Call{Kind: kind, Claim: plan.Ref{UID: "uid-1"}, Sandbox: sandbox}
	if kind == prepare.CallPrepare {
		c.Claim.Namespace, c.Claim.Name = "team-a", "train"
	}
	_, end := w.tracer.Call(ctx, c)
	w.tracer.Observe(effects.Event{Claim: plan.Ref{UID: "uid-1", Namespace: "team-a", Name: "train"}, Phase: effects.PhaseReset, Took: time.Millisecond, Err: w.err})
	end(prepare.Result{Record: &journal.Record{}, Err: w.err})
	return w.err
}

const traceID, callerID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"

// recorded returns a tracer, the work with its spans, and where they are.
func recorded() (*plugin.Tracer, *work, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	t := plugin.NewTracer(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), nil)
	return t, &work{tracer: t}, spans
}

// call prepares a claim in a call of the kubelet with a trace context.
func call(t *testing.T, w *work) {
	t.Helper()
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-"+traceID+"-"+callerID+"-01"))
	_, err := w.tracer.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/v1.DRAPlugin/NodePrepareResources"}, func(ctx context.Context, _ any) (any, error) {
		return nil, w.do(ctx, prepare.CallPrepare, "")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPodStartIsOneTrace: from the kubelet's call to the resets in Prepare and in the sandbox.
func TestPodStartIsOneTrace(t *testing.T) {
	_, w, spans := recorded()
	call(t, w)
	if err := w.do(t.Context(), prepare.CallHandOver, "s"); err != nil {
		t.Fatal(err)
	}
	parents, ids := map[string]string{}, map[string]string{callerID: "kubelet"}
	all := spans.GetSpans()
	for _, s := range all {
		ids[s.SpanContext.SpanID().String()] = s.Name
	}
	for _, s := range all {
		if got := s.SpanContext.TraceID().String(); got != traceID {
			t.Errorf("%s is in trace %s", s.Name, got)
		}
		parents[ids[s.Parent.SpanID().String()]] += s.Name + " "
	}
	for parent, want := range map[string]string{
		"kubelet": "v1.DRAPlugin/NodePrepareResources ", "v1.DRAPlugin/NodePrepareResources": "prepare ", "prepare": "reset sandbox ", "sandbox": "reset ",
	} {
		if parents[parent] != want {
			t.Errorf("below %s: %q, want %q", parent, parents[parent], want)
		}
	}
}

func TestUnprepareLinksToPrepare(t *testing.T) {
	_, w, spans := recorded()
	call(t, w)
	spans.Reset()
	w.err = errors.New("in use")
	for range 2 {
		_ = w.do(t.Context(), prepare.CallUnprepare, "")
		w.err = nil
	}
	_ = w.do(t.Context(), prepare.CallUnprepare, "")
	var got []string
	for _, s := range spans.GetSpans() {
		if s.Name != "unprepare" {
			continue
		}
		text := value(s.Attributes, "kata_vfio.outcome") + " " + value(s.Attributes, "k8s.namespace.name") + "/" + value(s.Attributes, "kata_vfio.claim.name")
		if len(s.Links) > 0 {
			text += " of " + s.Links[0].SpanContext.TraceID().String()
		}
		got = append(got, text)
	}
	want := []string{"error team-a/train of " + traceID, "ok team-a/train of " + traceID, "ok team-a/train"}
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("spans %q, want %q", got, want)
		}
	}
}

func value(attributes []attribute.KeyValue, key string) string {
	for _, a := range attributes {
		if string(a.Key) == key {
			return a.Value.AsString()
		}
	}
	return ""
}

func TestHooksThatMatterHaveSpans(t *testing.T) {
	tracer, _, spans := recorded()
	tracer.Hook("CreateContainer", time.Millisecond, nil)
	tracer.Hook("CreateContainer", time.Millisecond, errors.New("refused"))
	tracer.Hook("RunPodSandbox", time.Second, nil)
	if got := spans.GetSpans(); len(got) != 2 || got[0].Name != "nri/CreateContainer" || got[1].EndTime.Sub(got[1].StartTime) != time.Second {
		t.Errorf("spans %+v", got)
	}
}

// receiver is a collector on loopback.
type receiver struct {
	collector.UnimplementedTraceServiceServer

	mu  sync.Mutex
	got []*collector.ExportTraceServiceRequest
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got = append(r.got, req)
	return &collector.ExportTraceServiceResponse{}, nil
}

// serve returns a collector and its URL.
func serve(t *testing.T) (*receiver, string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, server := &receiver{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return r, "http://" + l.Addr().String()
}

// TestSpansAreExported: by the flag or by the standard environment, and by neither where nobody asks.
func TestSpansAreExported(t *testing.T) {
	for name, c := range map[string]struct {
		flag, env, disabled bool
		want                int
	}{
		"flag": {flag: true, want: 1}, "environment": {env: true, want: 1}, "off": {}, "disabled": {flag: true, disabled: true},
	} {
		t.Run(name, func(t *testing.T) {
			r, url := serve(t)
			config := plugin.TraceConfig{Node: "worker-1", Version: "v1"}
			if c.flag {
				config.Endpoint = url
			}
			if c.env {
				t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
			}
			if c.disabled {
				t.Setenv("OTEL_SDK_DISABLED", "true")
			}
			export(t, config)
			if len(r.got) != c.want {
				t.Fatalf("%d exports, want %d", len(r.got), c.want)
			}
			if c.want > 0 {
				wantResource(t, r.got[0])
			}
		})
	}
}

// export opens a tracer, prepares a claim and closes the tracer.
func export(t *testing.T, config plugin.TraceConfig) {
	t.Helper()
	tracer, err := plugin.OpenTracer(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	call(t, &work{tracer: tracer})
	tracer.Close(t.Context())
}

func wantResource(t *testing.T, req *collector.ExportTraceServiceRequest) {
	t.Helper()
	got := map[string]string{}
	for _, a := range req.GetResourceSpans()[0].GetResource().GetAttributes() {
		got[a.GetKey()] = a.GetValue().GetStringValue()
	}
	if got["service.name"] != "kata-vfio-plugin" || got["k8s.node.name"] != "worker-1" || got["service.version"] != "v1" {
		t.Errorf("resource %v", got)
	}
	if spans := req.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans(); len(spans) != 3 {
		t.Errorf("%d spans, want those of the call, of prepare and of the reset", len(spans))
	}
}
