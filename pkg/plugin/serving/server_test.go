package serving_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	certutil "k8s.io/client-go/util/cert"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
)

// serve serves until the test ends.
func serve(t *testing.T, h http.Handler, certificates *tls.Config) *serving.Server {
	t.Helper()
	s, err := serving.Listen(t.Context(), "127.0.0.1:0", h, certificates)
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	return s
}

// run serves with a server until the test ends.
func run(t *testing.T, s *serving.Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		s.Close()
	})
}

// get returns status and body of a page.
func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestListenRefusesAnAddressInUse(t *testing.T) {
	h := serving.Metrics(prometheus.NewRegistry(), nil)
	s, err := serving.Listen(t.Context(), "127.0.0.1:0", h, nil)
	if err != nil {
		t.Fatal(err)
	}
	addr := s.Addr().String()
	if second, err := serving.Listen(t.Context(), addr, h, nil); err == nil {
		second.Close()
		t.Error("listens twice on one address")
	}
	// A plugin that fails to start gives its port back.
	s.Close()
	again, err := serving.Listen(t.Context(), addr, h, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

// trusting is a client that trusts one certificate, for one name.
func trusting(certificate *x509.Certificate, name string) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: name}, DisableKeepAlives: true,
	}}
}

// TestMetricsAreServedOverTLS: a token that is sent over plain HTTP is not even looked at.
func TestMetricsAreServedOverTLS(t *testing.T) {
	certificates, err := serving.SelfSigned("worker-1")
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, serving.Metrics(prometheus.NewRegistry(), nil), certificates)
	if code, body := get(t, http.DefaultClient, "http://"+s.Addr().String()+"/metrics"); code != 400 || !strings.Contains(body, "HTTPS server") {
		t.Errorf("over plain HTTP: %d %q", code, body)
	}
	conn, err := tls.Dial("tcp", s.Addr().String(), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	chain := conn.ConnectionState().PeerCertificates
	conn.Close()
	if code, _ := get(t, trusting(chain[len(chain)-1], "worker-1"), "https://"+s.Addr().String()+"/metrics"); code != 200 {
		t.Errorf("over TLS: %d", code)
	}
	old := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}}}
	if resp, err := old.Get("https://" + s.Addr().String() + "/metrics"); err == nil {
		resp.Body.Close()
		t.Error("it speaks TLS 1.1")
	}
}

// writePair makes a certificate for a name, in the two files.
func writePair(t *testing.T, name, certFile, keyFile string) *x509.Certificate {
	t.Helper()
	certificate, key, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for file, content := range map[string][]byte{certFile: certificate, keyFile: key} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	chain, err := certutil.ParseCertsPEM(certificate)
	if err != nil {
		t.Fatal(err)
	}
	return chain[len(chain)-1]
}

func TestCertificatesAreReplacedWhileItServes(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if _, err := serving.FromFiles(certFile, keyFile); err == nil {
		t.Error("no error without files")
	}
	first := writePair(t, "first", certFile, keyFile)
	certificates, err := serving.FromFiles(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	url := "https://" + serve(t, serving.Metrics(prometheus.NewRegistry(), nil), certificates).Addr().String() + "/metrics"
	if code, _ := get(t, trusting(first, "first"), url); code != 200 {
		t.Errorf("with the first: %d", code)
	}
	second := writePair(t, "second", certFile, keyFile)
	if code, _ := get(t, trusting(second, "second"), url); code != 200 {
		t.Errorf("with the second: %d", code)
	}
	if err := os.WriteFile(keyFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _ := get(t, trusting(second, "second"), url); code != 200 {
		t.Errorf("with a broken key, from before: %d", code)
	}
}
