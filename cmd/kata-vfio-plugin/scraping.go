package main

import (
	"context"
	"crypto/tls"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
)

// scraping are the flags of how `run` serves metrics, and to whom.
type scraping struct {
	listen string
	// open serves plain HTTP, and without asking for a token.
	open              bool
	certFile, keyFile string
	// tenants has metrics name claims and their namespaces.
	tenants bool
}

func (m *scraping) register(f *pflag.FlagSet) {
	f.StringVar(&m.listen, "metrics-listen", ":9456", "address of /metrics")
	f.BoolVar(&m.open, "metrics-open", false, "serve /metrics over plain HTTP to every client that reaches the port; they show the node's devices, its failing\nchecks and the traffic of each VF")
	f.StringVar(&m.certFile, "metrics-cert-file", "", "certificate for /metrics, in PEM; read again when it is replaced (default: a self-signed one, made at start)")
	f.StringVar(&m.keyFile, "metrics-key-file", "", "the certificate's private key, in PEM")
	f.BoolVar(&m.tenants, "metrics-tenants", false, "name namespaces and claims in the metrics of VFs' traffic: whoever may read the metrics sees them")
}

func (m *scraping) validate() error {
	switch {
	case (m.certFile == "") != (m.keyFile == ""):
		return command.Usagef("--metrics-cert-file and --metrics-key-file go together: set both or neither")
	case m.open && m.certFile != "":
		return command.Usagef("--metrics-open serves plain HTTP: leave out --metrics-cert-file and --metrics-key-file, or --metrics-open")
	}
	return nil
}

// listen opens the ports of probes and of metrics.
func (s *service) listen(ctx context.Context, health *dra.Health) error {
	var err error
	if s.probes, err = serving.Listen(ctx, s.run.listen, serving.Probes(health.Ready), nil); err != nil {
		return err
	}
	s.scrapes, err = s.listenMetrics(ctx)
	return err
}

// listenMetrics opens the port of metrics.
func (s *service) listenMetrics(ctx context.Context) (*serving.Server, error) {
	m := &s.run.metrics
	if m.open {
		s.log.WarnContext(ctx, "metrics are open to whoever reaches their port", slog.String("flag", "--metrics-open"))
		return serving.Listen(ctx, m.listen, serving.Metrics(s.metrics.Registry, nil), nil)
	}
	client, err := newReviewClient(s.run.kubeconfig, s.metrics)
	if err != nil {
		return nil, err
	}
	certificates, err := m.certificates(s.run.nodeName)
	if err != nil {
		return nil, err
	}
	return serving.Listen(ctx, m.listen, serving.Metrics(s.metrics.Registry, serving.NewGuard(client, s.log)), certificates)
}

// certificates are those of the files, or one for the node that is made now.
func (m *scraping) certificates(nodeName string) (*tls.Config, error) {
	if m.certFile == "" {
		return serving.SelfSigned(nodeName)
	}
	return serving.FromFiles(m.certFile, m.keyFile)
}
