//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

// TestMetricsAreForThoseWithTheChartsRole: tokens of ServiceAccounts, reviewed by a real API server with the
// rights of the plugin's pod.
func TestMetricsAreForThoseWithTheChartsRole(t *testing.T) {
	const node = "e2e-metrics"
	p := installed(t)
	admin := client(t, p, controlplane.Admin())
	addFitNode(t, p, node)
	var log bytes.Buffer
	url := servedMetrics(t, pluginOn(t, p, node), &log)
	ns := namespace(t, p)
	reader, stranger := accountToken(t, admin, ns, "reader"), accountToken(t, admin, ns, "stranger")
	bind(t, p, "kata-vfio-metrics-reader", "system:serviceaccount:"+ns+":reader", "")
	// RBAC learns of the binding a moment later, and the guard of that some seconds later.
	until(t, "the reader may read", func(ctx context.Context) error {
		if code, body := scrape(ctx, t, url, reader); code != http.StatusOK || !strings.Contains(body, "kata_vfio_") {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	for name, c := range map[string]struct {
		token string
		code  int
		body  string
	}{
		"no token":              {"", http.StatusUnauthorized, "need a bearer token"},
		"a token of nobody":     {"eyJhbGciOiJub25lIn0.e30.", http.StatusUnauthorized, "does not accept"},
		"a broken token":        {reader + "x", http.StatusUnauthorized, "does not accept"},
		"a token without role":  {stranger, http.StatusForbidden, "system:serviceaccount:" + ns + ":stranger"},
		"a token with the role": {reader, http.StatusOK, "kata_vfio_"},
	} {
		if code, body := scrape(t.Context(), t, url, c.token); code != c.code || !strings.Contains(body, c.body) {
			t.Errorf("%s: %d %q, want %d %q", name, code, body, c.code, c.body)
		}
	}
	if log.Len() > 0 {
		t.Errorf("the log is\n%s", &log)
	}
}

// servedMetrics serves metrics as the plugin's command does, and returns their URL.
func servedMetrics(t *testing.T, reviews kubernetes.Interface, log io.Writer) string {
	t.Helper()
	certificates, err := serving.SelfSigned("e2e")
	if err != nil {
		t.Fatal(err)
	}
	guard := serving.NewGuard(reviews, slog.New(slog.NewTextHandler(log, nil)))
	m := metrics.New(plugintest.NoRecords{}, nothingStuck)
	server, err := serving.Listen(t.Context(), "127.0.0.1:0", serving.Metrics(m.Registry, guard), certificates)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	go func() { _ = server.Serve(t.Context()) }() // it ends with the test
	return "https://" + server.Addr().String() + serving.MetricsPath
}

// accountToken is a token of a new ServiceAccount, as its pods get one.
func accountToken(t *testing.T, admin kubernetes.Interface, ns, name string) string {
	t.Helper()
	accounts := admin.CoreV1().ServiceAccounts(ns)
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Status.Token
}

// scrape is the status and the body that a token gets.
func scrape(ctx context.Context, t *testing.T, url, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	scraper := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, // as the chart's monitors do by default
	}}
	resp, err := scraper.Do(req)
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
