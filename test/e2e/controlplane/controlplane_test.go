package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kata-vfio/kata-vfio/test/e2e/process"
)

// newControlPlane is one that has its files and ports, and no process.
func newControlPlane(t *testing.T) *ControlPlane {
	t.Helper()
	p := &ControlPlane{dir: t.TempDir()}
	if err := p.prepare(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func pool(t *testing.T, p *ControlPlane) *x509.CertPool {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(p.CA()) {
		t.Fatalf("the authority is not a certificate: %s", p.CA())
	}
	return roots
}

func TestServingCertificateIsValidForEveryWayToTheServer(t *testing.T) {
	p := newControlPlane(t)
	loaded, err := tls.LoadX509KeyPair(p.file(servingCertFile), p.file(servingKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"127.0.0.1", LabHost, "10.96.0.1", "localhost", "kubernetes.default.svc"} {
		_, err := loaded.Leaf.Verify(x509.VerifyOptions{Roots: pool(t, p), DNSName: name})
		if err != nil {
			t.Errorf("as %s: %v", name, err)
		}
	}
	if _, err := loaded.Leaf.Verify(x509.VerifyOptions{Roots: pool(t, p), DNSName: "192.0.2.1"}); err == nil {
		t.Error("it is valid for an address that it does not name")
	}
}

func TestKubeconfigCarriesTheUserAndTheServer(t *testing.T) {
	p := newControlPlane(t)
	server := p.Server(LabHost)
	path, err := p.KubeconfigFile(NodeIdentity("node/1"), server)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("https://10.0.2.2:%d", p.ports.apiServer.number); config.Host != want {
		t.Errorf("the server is %s, want %s", config.Host, want)
	}
	loaded, err := tls.X509KeyPair(config.CertData, config.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if _, err := loaded.Leaf.Verify(x509.VerifyOptions{Roots: pool(t, p), KeyUsages: usage}); err != nil {
		t.Error(err)
	}
	subject := loaded.Leaf.Subject
	got := User{Name: subject.CommonName, Groups: subject.Organization}
	if diff := cmp.Diff(User{Name: "system:node:node/1", Groups: []string{"system:nodes"}}, got); diff != "" {
		t.Errorf("the user differs (-want +got):\n%s", diff)
	}
}

func TestPortsAreHeldUntilTheyAreReleased(t *testing.T) {
	p, err := choosePorts()
	if err != nil {
		t.Fatal(err)
	}
	defer p.release()
	address := fmt.Sprintf("127.0.0.1:%d", p.apiServer.number)
	if l, err := net.Listen("tcp", address); err == nil {
		l.Close()
		t.Error("somebody else can take a chosen port")
	}
	p.apiServer.release()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("a released port is not free: %v", err)
	}
	l.Close()
}

func TestComponentThatEndsByItselfIsAnErrorWithItsLog(t *testing.T) {
	p := newControlPlane(t)
	log := p.LogFile("kube-apiserver")
	if err := os.WriteFile(log, []byte("E1121 no such flag\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	child, err := process.Start(exec.CommandContext(t.Context(), "sh", "-c", "exit 7"))
	if err != nil {
		t.Fatal(err)
	}
	never := func(context.Context) error { return errors.New("not ready") }
	r := &running{component: component{name: "kube-apiserver", ready: never}, process: child, log: log}
	err = r.awaitReady(t.Context())
	for _, want := range []string{"kube-apiserver", "exit status 7", "no such flag"} {
		if !errors.Is(err, errEnded) || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	p.running = append(p.running, r)
	if err := p.Lost(); !errors.Is(err, errEnded) {
		t.Errorf("Lost says %v", err)
	}
}

func TestSwitchesAreInAFixedOrder(t *testing.T) {
	on := map[string]bool{"DRAPartitionableDevices": true, "AllAlpha": false}
	want := []string{"--feature-gates=AllAlpha=false,DRAPartitionableDevices=true"}
	if diff := cmp.Diff(want, switches("feature-gates", on)); diff != "" {
		t.Errorf("the flag differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string(nil), switches("feature-gates", nil), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("no switches make a flag (-want +got):\n%s", diff)
	}
}
