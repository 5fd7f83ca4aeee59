//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kata-vfio/kata-vfio/test/e2e/controlplane"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
)

// closesMetrics: the plugin as the chart installs it answers a ServiceAccount that metrics.readers names, and no other.
func closesMetrics(ctx context.Context, s *site) error {
	pod, err := s.pluginPod(ctx)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		account string
		code    int
		text    string
	}{
		{"", http.StatusUnauthorized, "need a bearer token"},
		{"default", http.StatusForbidden, "system:serviceaccount:" + trusted + ":default"},
		{node.MetricsReader, http.StatusOK, "kata_vfio_devices"},
	} {
		err := s.until(ctx, fmt.Sprintf("account %q gets %d", c.account, c.code), nodeLimit, func(ctx context.Context) error {
			code, text, err := s.scrapeAs(ctx, pod, c.account)
			if err == nil && (code != c.code || !strings.Contains(text, c.text)) {
				err = fmt.Errorf("it gets %d %s", code, text)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.silentConnectionsStopNobody(ctx, pod)
}

// silentConnectionsStopNobody: with 300 connections that say nothing at its only port, the plugin's probes and scrapes are answered.
func (s *site) silentConnectionsStopNobody(ctx context.Context, pod *corev1.Pod) error {
	// The machine has no HTTP client.
	_, err := s.output(ctx, `bash -c 'for i in $(seq 300); do exec {fd}<>/dev/tcp/`+pod.Status.PodIP+`/9456; done; sleep 30' >/dev/null 2>&1 &
sleep 1`)
	if err != nil {
		return err
	}
	for _, page := range []string{"live", "ready"} {
		_, err := s.plane.Kubectl(ctx, "exec", "--namespace", pod.Namespace, pod.Name, "--",
			"/usr/bin/kata-vfio-plugin", "probe", page, "--probe-socket=/run/kata-vfio-probes/probes.sock")
		if err != nil {
			return fmt.Errorf("probe %s: %w", page, err)
		}
	}
	if code, text, err := s.scrapeAs(ctx, pod, node.MetricsReader); err != nil || code != http.StatusOK {
		return fmt.Errorf("a scrape beside silent connections: %d %s: %w", code, text, err)
	}
	if got, err := s.output(ctx, "bash -c 'exec 3<>/dev/tcp/"+pod.Status.PodIP+"/9455' 2>&1 || true"); err != nil || !strings.Contains(got, "refused") {
		return fmt.Errorf("the port 9455: %q (%w), want none", got, err)
	}
	return nil
}

// metrics are the plugin's whose names begin so.
func (s *site) metrics(ctx context.Context, prefix string) (string, error) {
	pod, err := s.pluginPod(ctx)
	if err != nil {
		return "", err
	}
	code, text, err := s.scrapeAs(ctx, pod, node.MetricsReader)
	if err != nil || code != http.StatusOK {
		return "", fmt.Errorf("the plugin's metrics: %d %s: %w", code, text, err)
	}
	return strings.Join(regexp.MustCompile("(?m)^"+prefix+".*$").FindAllString(text, -1), "\n"), nil
}

// pluginPod is the only pod of the plugin.
func (s *site) pluginPod(ctx context.Context) (*corev1.Pod, error) {
	pods, err := s.client.CoreV1().Pods(system).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=plugin"})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("there are %d pods of the plugin", len(pods.Items))
	}
	return &pods.Items[0], nil
}

// scrapeAs is what a ServiceAccount of the trusted namespace gets, through kubectl's port-forward: neither the machine
// nor the plugin's image has a client for TLS. No name sends no token.
func (s *site) scrapeAs(ctx context.Context, pod *corev1.Pod, account string) (int, string, error) {
	token, err := s.tokenOf(ctx, account)
	if err != nil {
		return 0, "", err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	address, err := s.forward(ctx, pod)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	scraper := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true, // as the chart's monitors do by default
	}}
	resp, err := scraper.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// tokenOf is a new token of a ServiceAccount, which is made if need be.
func (s *site) tokenOf(ctx context.Context, account string) (string, error) {
	if account == "" {
		return "", nil
	}
	accounts := s.client.CoreV1().ServiceAccounts(trusted)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return "", err
	}
	got, err := accounts.CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return got.Status.Token, nil
}

// forward is an address here that leads to the port of the pod's metrics until ctx ends.
func (s *site) forward(ctx context.Context, pod *corev1.Pod) (string, error) {
	cmd, err := s.plane.KubectlAs(ctx, controlplane.Admin(), "", "port-forward", "--namespace", pod.Namespace, "pod/"+pod.Name, ":9456")
	if err != nil {
		return "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", fmt.Errorf("run kubectl port-forward: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = cmd.Wait() }) // it was killed
	line, err := bufio.NewReader(stdout).ReadString('\n')
	address, ok := strings.CutPrefix(line, "Forwarding from ")
	address, _, _ = strings.Cut(address, " ")
	if err != nil || !ok {
		return "", errors.Join(err, fmt.Errorf("kubectl port-forward says %q", line))
	}
	return address, nil
}
