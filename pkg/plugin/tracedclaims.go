package plugin

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// Call starts a span for a call about a claim, and returns the function that ends the span. It implements [prepare.Tracer].
//
// The span of an Unprepare links to the span of the claim's Prepare. The spans of a sandbox's calls are in the trace of Prepare, and link
// to the call of the runtime.
func (t *Tracer) Call(ctx context.Context, c prepare.Call) (traced context.Context, end func(prepare.Result)) {
	traced, span := t.start(ctx, c)
	return traced, func(r prepare.Result) {
		switch {
		case r.Err != nil || !span.IsRecording() && c.Kind != prepare.CallUnprepare:
		case c.Kind == prepare.CallPrepare:
			t.remember(c.Claim.UID, span.SpanContext())
			span.SetAttributes(attribute.StringSlice("kata_vfio.device.addresses", addresses(r.Record)))
		case c.Kind == prepare.CallUnprepare:
			t.forget(c.Claim.UID)
			span.SetAttributes(attribute.Int("kata_vfio.resets", len(r.Proofs)))
		}
		t.finish(span, c.Claim.UID, r.Err)
	}
}

// start starts the span of a call.
func (t *Tracer) start(ctx context.Context, c prepare.Call) (context.Context, trace.Span) {
	uid, kind := c.Claim.UID, string(c.Kind)
	switch c.Kind {
	case prepare.CallPrepare:
		return t.begin(ctx, kind, uid, trace.WithAttributes(named(c.Claim.Namespace, c.Claim.Name)...))
	case prepare.CallUnprepare:
		return t.begin(ctx, kind, uid, linkTo(t.preparedIn(uid)))
	default:
		return t.inTraceOfPrepare(ctx, kind, uid, c.Sandbox)
	}
}

// inTraceOfPrepare starts a span below the span of Prepare. If Prepare has no span, as after a restart, it starts one below the span of
// ctx.
func (t *Tracer) inTraceOfPrepare(ctx context.Context, name, uid, sandbox string) (context.Context, trace.Span) {
	about := trace.WithAttributes(attribute.String("kata_vfio.sandbox.id", sandbox))
	prepared := t.preparedIn(uid)
	if !prepared.IsValid() {
		return t.begin(ctx, name, uid, about)
	}
	caller := linkTo(trace.SpanContextFromContext(ctx))
	return t.begin(trace.ContextWithRemoteSpanContext(ctx, prepared), name, uid, about, caller)
}

// linkTo links a span to another, if there is one.
func linkTo(other trace.SpanContext) trace.SpanStartOption {
	if !other.IsValid() {
		return trace.WithLinks()
	}
	return trace.WithLinks(trace.Link{SpanContext: other})
}

func (t *Tracer) remember(uid string, prepared trace.SpanContext) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.prepared[uid] = prepared
}

func (t *Tracer) forget(uid string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.prepared, uid)
}

// preparedIn returns the span in which a claim was prepared, or an invalid one.
func (t *Tracer) preparedIn(uid string) trace.SpanContext {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.prepared[uid]
}

// outcome returns ok, quarantined or error.
func outcome(err error) string {
	if _, quarantined := errors.AsType[*prepare.QuarantinedError](err); quarantined {
		return "quarantined"
	}
	if err != nil {
		return "error"
	}
	return "ok"
}

// named returns the attributes of a claim's name.
func named(namespace, name string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("k8s.namespace.name", namespace), attribute.String("kata_vfio.claim.name", name)}
}

func addresses(rec *journal.Record) []string {
	var all []string
	for _, a := range rec.Plan.Addresses() {
		all = append(all, a.String())
	}
	return all
}
