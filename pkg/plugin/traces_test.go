package plugin_test

import (
	"path/filepath"
	"slices"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc/metadata"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/kata-vfio/kata-vfio/pkg/plugin"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestKubeletsTraceReachesTheReset: through the socket, with the real order of effects.
func TestKubeletsTraceReachesTheReset(t *testing.T) {
	const traceID = "0af7651916cd43dd8448eb211c80319c"
	spans := tracetest.NewInMemoryExporter()
	tracer := plugin.NewTracer(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)), nil)
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	n.Intercept = tracer.Unary
	n.Reopen(func(c *prepare.Config) { c.Parts.Observe, c.Tracer = tracer.Observe, tracer })
	c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	k := plugintest.Serve(t, n, n.Claims, "", c)
	service := drapb.NewDRAPluginClient(k.Dial(filepath.Join(k.Dir, "plugin/dra.sock")))
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+traceID+"-b7ad6b7169203331-01")
	refs := []*drapb.Claim{{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)}}
	if _, err := service.NodePrepareResources(ctx, &drapb.NodePrepareResourcesRequest{Claims: refs}); err != nil {
		t.Fatal(err)
	}
	if _, err := service.NodeUnprepareResources(ctx, &drapb.NodeUnprepareResourcesRequest{Claims: refs}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range spans.GetSpans() {
		if s.SpanContext.TraceID().String() != traceID {
			t.Errorf("%s is in another trace", s.Name)
		}
		names = append(names, s.Name)
	}
	for _, want := range []string{"k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources", "prepare", "bind", "journal", "cdi", "unprepare", "reset"} {
		if !slices.Contains(names, want) {
			t.Errorf("spans %q lack %q", names, want)
		}
	}
}
