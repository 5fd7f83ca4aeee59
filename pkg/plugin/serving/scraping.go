package serving

import (
	"context"
	"crypto/tls"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// Scraping says where a daemon serves metrics, and to which clients.
type Scraping struct {
	// Listen is the address of [MetricsPath].
	Listen string
	// Open serves metrics over plain HTTP to every client.
	Open bool
	// CertFile and KeyFile have the certificate. Without them, one is created at the start.
	CertFile, KeyFile string
}

// AddFlags adds the flags of Scraping. shows is what the metrics show to everybody if they are open.
func (s *Scraping) AddFlags(f *pflag.FlagSet, shows string) {
	f.StringVar(&s.Listen, "metrics-listen", ":9456", "address of /metrics")
	f.BoolVar(&s.Open, "metrics-open", false, "serve /metrics over plain HTTP to every client that reaches the port; they show "+shows)
	f.StringVar(&s.CertFile, "metrics-cert-file", "", "certificate for /metrics, in PEM; read again when it is replaced (default: a self-signed one, created at start)")
	f.StringVar(&s.KeyFile, "metrics-key-file", "", "the certificate's private key, in PEM")
}

// Validate returns a [command.UsageError] for flags that contradict each other.
func (s *Scraping) Validate() error {
	switch {
	case (s.CertFile == "") != (s.KeyFile == ""):
		return command.Usagef("--metrics-cert-file and --metrics-key-file go together: set both or neither")
	case s.Open && s.CertFile != "":
		return command.Usagef("--metrics-open serves plain HTTP: leave out --metrics-cert-file and --metrics-key-file, or --metrics-open")
	}
	return nil
}

// Serve opens the port of metrics. host is the name in a certificate that is created. reviews returns the client for
// reviews of scrapers' tokens: it is called once, and not if metrics are open.
func (s *Scraping) Serve(
	ctx context.Context, registry prometheus.Gatherer, host string, log *slog.Logger, reviews func() (kubernetes.Interface, error),
) (*Server, error) {
	if s.Open {
		log.WarnContext(ctx, "metrics are open to every client that reaches their port", slog.String("flag", "--metrics-open"))
		return Listen(ctx, s.Listen, Metrics(registry, nil), nil)
	}
	client, err := reviews()
	if err != nil {
		return nil, err
	}
	certificates, err := s.certificates(host)
	if err != nil {
		return nil, err
	}
	return Listen(ctx, s.Listen, Metrics(registry, NewGuard(client, log)), certificates)
}

// certificates returns the certificate in the files, or a new one for the host.
func (s *Scraping) certificates(host string) (*tls.Config, error) {
	if s.CertFile == "" {
		return SelfSigned(host)
	}
	return FromFiles(s.CertFile, s.KeyFile)
}
