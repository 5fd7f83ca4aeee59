package trace

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
)

// Work is the work on claims that gets spans; [prepare.Preparer] implements it.
type Work interface {
	Prepare(ctx context.Context, req *claim.Request) (*journal.Record, error)
	UnprepareIf(ctx context.Context, uid string, check func(context.Context, *journal.Record) error) (prepare.Release, error)
	HandOver(ctx context.Context, uid string, to journal.Sandbox) error
	Renew(ctx context.Context, uid, sandboxID string) ([]isolation.Proof, error)
}

// Claims does the work with a span of each call.
type Claims struct {
	tracer *Tracer
	work   Work
}

// Claims returns work with spans.
func (t *Tracer) Claims(work Work) *Claims { return &Claims{tracer: t, work: work} }

// Prepare implements [Work].
func (c *Claims) Prepare(ctx context.Context, req *claim.Request) (*journal.Record, error) {
	ctx, span := c.tracer.begin(ctx, "prepare", req.UID, trace.WithAttributes(named(req.Namespace, req.Name)...))
	rec, err := c.work.Prepare(ctx, req)
	if err == nil && span.IsRecording() {
		c.tracer.remember(req.UID, span.SpanContext())
		span.SetAttributes(attribute.StringSlice("kata_vfio.device.addresses", addresses(rec)))
	}
	c.tracer.finish(span, req.UID, err)
	return rec, err
}

// UnprepareIf implements [Work]. Its span links to that of Prepare.
func (c *Claims) UnprepareIf(ctx context.Context, uid string, check func(context.Context, *journal.Record) error) (prepare.Release, error) {
	ctx, span := c.tracer.begin(ctx, "unprepare", uid, linkTo(c.tracer.preparedIn(uid)))
	release, err := c.work.UnprepareIf(ctx, uid, check)
	if err == nil {
		c.tracer.forget(uid)
		span.SetAttributes(attribute.Int("kata_vfio.resets", len(release.Proofs)))
	}
	c.tracer.finish(span, uid, err)
	return release, err
}

// HandOver implements [Work]. Its span is in the trace of Prepare, and links to the call of the runtime.
func (c *Claims) HandOver(ctx context.Context, uid string, to journal.Sandbox) error {
	ctx, span := c.inTraceOfPrepare(ctx, "sandbox", uid, to.ID)
	err := c.work.HandOver(ctx, uid, to)
	c.tracer.finish(span, uid, err)
	return err
}

// Renew implements [Work], as HandOver.
func (c *Claims) Renew(ctx context.Context, uid, sandboxID string) ([]isolation.Proof, error) {
	ctx, span := c.inTraceOfPrepare(ctx, "renew", uid, sandboxID)
	proofs, err := c.work.Renew(ctx, uid, sandboxID)
	c.tracer.finish(span, uid, err)
	return proofs, err
}

// inTraceOfPrepare starts a span below Prepare's, or below that of ctx if Prepare has none, as after a restart.
func (c *Claims) inTraceOfPrepare(ctx context.Context, name, uid, sandbox string) (context.Context, trace.Span) {
	about := trace.WithAttributes(attribute.String("kata_vfio.sandbox.id", sandbox))
	prepared := c.tracer.preparedIn(uid)
	if !prepared.IsValid() {
		return c.tracer.begin(ctx, name, uid, about)
	}
	caller := linkTo(trace.SpanContextFromContext(ctx))
	return c.tracer.begin(trace.ContextWithRemoteSpanContext(ctx, prepared), name, uid, about, caller)
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
