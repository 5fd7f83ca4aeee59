package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// traceScope is the name of the instrumentation.
const traceScope = "github.com/kata-vfio/kata-vfio/pkg/plugin"

// TraceConfig says where spans are sent, and what they describe.
type TraceConfig struct {
	// Endpoint is the collector's URL, such as http://collector:4317. Without it, the environment's
	// (OTEL_EXPORTER_OTLP_ENDPOINT) is used, or no spans are sent.
	Endpoint string
	// Node is the node's name, Version the plugin's version.
	Node, Version string
}

// enabled reports whether the config or the standard environment requests spans.
func (c *TraceConfig) enabled() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return c.Endpoint != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// Tracer makes OpenTelemetry spans of the plugin's work on claims, and exports them by OTLP over gRPC. It is safe for concurrent use.
type Tracer struct {
	tracer   trace.Tracer
	exporter SpanExporter

	mu       sync.Mutex // guards all below
	active   map[string][]trace.Span
	prepared map[string]trace.SpanContext // the latest Prepare of prepared claims, by UID
}

// OpenTracer returns a tracer that exports to a collector. If tracing is not requested, the tracer does nothing. Open does
// not wait for the collector.
func OpenTracer(ctx context.Context, c TraceConfig) (*Tracer, error) {
	if !c.enabled() {
		return NewTracer(noop.NewTracerProvider(), nil), nil
	}
	var options []otlptracegrpc.Option
	if c.Endpoint != "" {
		options = append(options, otlptracegrpc.WithEndpointURL(c.Endpoint))
	}
	exporter, err := otlptracegrpc.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("make an OTLP exporter: %w", err)
	}
	from, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "kata-vfio-plugin"), attribute.String("service.version", c.Version), attribute.String("k8s.node.name", c.Node),
	), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("describe the plugin in its spans: %w", err), exporter.Shutdown(ctx))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(from))
	return NewTracer(provider, provider), nil
}

// SpanExporter sends spans; [sdktrace.TracerProvider] implements it.
type SpanExporter interface {
	// Shutdown sends the remaining spans.
	Shutdown(ctx context.Context) error
}

// NewTracer returns a tracer with a provider. exporter may be nil.
func NewTracer(provider trace.TracerProvider, exporter SpanExporter) *Tracer {
	return &Tracer{
		tracer: provider.Tracer(traceScope), exporter: exporter, active: map[string][]trace.Span{}, prepared: map[string]trace.SpanContext{},
	}
}

// closeLimit is how long Close waits for the collector.
const closeLimit = 5 * time.Second

// Close sends the remaining spans. Errors go to OpenTelemetry's error handler: an absent collector is not an error of
// the plugin.
func (t *Tracer) Close(ctx context.Context) {
	if t.exporter == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	if err := t.exporter.Shutdown(ctx); err != nil {
		otel.Handle(fmt.Errorf("send the last spans: %w", err))
	}
}

// Unary creates a span for each gRPC call, in the trace of the caller's W3C trace context. It is a
// [grpc.UnaryServerInterceptor], because the kubelet plugin helper accepts no stats handler.
func (t *Tracer) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	ctx = propagation.TraceContext{}.Extract(ctx, carrier(md))
	service, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
	ctx, span := t.tracer.Start(ctx, service+"/"+method, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", method),
	))
	answer, err := handler(ctx, req)
	end(span, err)
	return answer, err
}

// carrier reads a trace context from a call's metadata.
type carrier metadata.MD

// Get implements [propagation.TextMapCarrier].
func (c carrier) Get(key string) string {
	if values := metadata.MD(c).Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set implements [propagation.TextMapCarrier].
func (c carrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys implements [propagation.TextMapCarrier].
func (c carrier) Keys() []string {
	keys := make([]string, 0, len(c))
	for key := range c {
		keys = append(keys, key)
	}
	return keys
}

// Observe creates a child span for each phase of the work on a claim. It is an [effects.Observer].
func (t *Tracer) Observe(e effects.Event) {
	parent := t.working(e.Claim.UID)
	// Work that no call began, such as the recovery, has no parent: its phases would be traces of one span each.
	if parent == nil || !parent.IsRecording() {
		return
	}
	now := time.Now()
	// The phase has ended by now, so the span is made with the times of the past.
	ctx := trace.ContextWithSpan(context.Background(), parent)
	_, span := t.tracer.Start(ctx, string(e.Phase), trace.WithTimestamp(now.Add(-e.Took)))
	if e.Step != nil {
		span.SetAttributes(attribute.String("kata_vfio.step", string(e.Step.Operation)))
		if e.Step.Address != (pci.Address{}) {
			span.SetAttributes(attribute.String("kata_vfio.device.address", e.Step.Address.String()))
		}
	}
	if e.Claim.Name != "" {
		parent.SetAttributes(named(e.Claim.Namespace, e.Claim.Name)...)
	}
	end(span, e.Err, trace.WithTimestamp(now))
}

// Hook creates a span for a finished call of the runtime through NRI. It skips calls that were fast and not refused,
// because each container of the node makes some.
func (t *Tracer) Hook(name string, took time.Duration, err error) {
	if err == nil && took < slowHook {
		return
	}
	now := time.Now()
	_, span := t.tracer.Start(context.Background(), "nri/"+name, trace.WithTimestamp(now.Add(-took)))
	end(span, err, trace.WithTimestamp(now))
}

// slowHook is the minimum duration of an accepted call that gets a span.
const slowHook = 10 * time.Millisecond

// begin starts a span of the work on a claim.
func (t *Tracer) begin(ctx context.Context, name, uid string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx, span := t.tracer.Start(ctx, name, append(options, trace.WithAttributes(attribute.String("kata_vfio.claim.uid", uid)))...)
	if span.IsRecording() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.active[uid] = append(t.active[uid], span)
	}
	return ctx, span
}

// finish ends a span that begin started.
func (t *Tracer) finish(span trace.Span, uid string, err error) {
	end(span, err)
	t.mu.Lock()
	defer t.mu.Unlock()
	left := slices.DeleteFunc(t.active[uid], func(other trace.Span) bool { return other == span })
	if t.active[uid] = left; len(left) == 0 {
		delete(t.active, uid)
	}
}

// working returns the latest span of the work on a claim, or nil.
func (t *Tracer) working(uid string) trace.Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	if spans := t.active[uid]; len(spans) > 0 {
		return spans[len(spans)-1]
	}
	return nil
}

// end ends a span with its outcome.
func end(span trace.Span, err error, options ...trace.SpanEndOption) {
	span.SetAttributes(attribute.String("kata_vfio.outcome", outcome(err)))
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End(options...)
}
