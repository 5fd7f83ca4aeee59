package serving_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
)

// dialFrom connects from a loopback address.
func dialFrom(t *testing.T, source string, to net.Addr) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(source), 0)), Timeout: 5 * time.Second}
	c, err := d.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// scrape asks for metrics on a connection, and returns the status and whether the server closes the connection.
func scrape(t *testing.T, c net.Conn, page, token string) (status int, closes bool) {
	t.Helper()
	header := ""
	if token != "" {
		header = "Authorization: Bearer " + token + "\r\n"
	}
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET "+page+" HTTP/1.1\r\nHost: x\r\n"+header+"\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Close
}

// isClosed reports whether the server has closed a connection, or does so soon.
func isClosed(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Read(make([]byte, 1))
	timeout, ok := errors.AsType[net.Error](err)
	return err != nil && (!ok || !timeout.Timeout())
}

// TestRefusedClientsKeepNoConnection: only a reader may ask again on the same connection.
func TestRefusedClientsKeepNoConnection(t *testing.T) {
	h, _ := guarded(t, newAPI())
	s := serve(t, h, nil)
	for name, tt := range map[string]struct {
		page, token string
		status      int
		closes      bool
	}{
		"no token":      {"/metrics", "", 401, true},
		"unknown token": {"/metrics", "t-unknown", 401, true},
		"no right":      {"/metrics", "t-stranger", 403, true},
		"another page":  {"/", "", 404, true},
		"a reader":      {"/metrics", "t-reader", 200, false},
	} {
		c := dialFrom(t, "127.0.0.1", s.Addr())
		if status, closes := scrape(t, c, tt.page, tt.token); status != tt.status || closes != tt.closes {
			t.Errorf("%s: status %d and closed: %v, want %d and %v", name, status, closes, tt.status, tt.closes)
		}
	}
}

// TestSilentConnectionsKeepNobodyOut: from one address, from many, and with TLS; a reader's connection stays.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	certificates, err := serving.SelfSigned("worker-1")
	if err != nil {
		t.Fatal(err)
	}
	h, _ := guarded(t, newAPI())
	s := serve(t, h, certificates)
	encrypted := func(source string) net.Conn {
		return tls.Client(dialFrom(t, source, s.Addr()), &tls.Config{InsecureSkipVerify: true})
	}
	reader := encrypted("127.0.0.1")
	if status, _ := scrape(t, reader, "/metrics", "t-reader"); status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	var silent []net.Conn
	for i := range 300 {
		silent = append(silent, dialFrom(t, netip.AddrFrom4([4]byte{127, 0, 1, byte(i % 30)}).Next().String(), s.Addr()))
	}
	for range 40 { // from the reader's own address
		silent = append(silent, dialFrom(t, "127.0.0.1", s.Addr()))
	}
	if status, _ := scrape(t, encrypted("127.0.0.9"), "/metrics", "t-reader"); status != http.StatusOK {
		t.Errorf("a reader from elsewhere: %d", status)
	}
	if status, _ := scrape(t, encrypted("127.0.0.1"), "/metrics", "t-reader"); status != http.StatusOK {
		t.Errorf("a reader beside silent connections from its address: %d", status)
	}
	if status, _ := scrape(t, reader, "/metrics", "t-reader"); status != http.StatusOK {
		t.Errorf("the reader's first connection: %d", status)
	}
	if !isClosed(t, silent[0]) {
		t.Error("the first silent connection is open still")
	}
}

// TestConnectionsOfOneSourceAreLimited: one that is beyond the limit is closed, and does not wait.
func TestConnectionsOfOneSourceAreLimited(t *testing.T) {
	h, _ := guarded(t, newAPI())
	s := serve(t, h, nil)
	for range 16 {
		if status, _ := scrape(t, dialFrom(t, "127.0.0.1", s.Addr()), "/metrics", "t-reader"); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
	}
	if !isClosed(t, dialFrom(t, "127.0.0.1", s.Addr())) {
		t.Error("a seventeenth connection from one address")
	}
	if status, _ := scrape(t, dialFrom(t, "127.0.0.2", s.Addr()), "/metrics", "t-reader"); status != http.StatusOK {
		t.Errorf("another address: %d", status)
	}
}

// TestProbesAnswerWhateverReachesMetrics: connections to the port of metrics don't delay the kubelet's probe.
func TestProbesAnswerWhateverReachesMetrics(t *testing.T) {
	h, _ := guarded(t, newAPI())
	s := serve(t, h, nil)
	socket := probed(t, func() string { return "" })
	for i := range 300 {
		dialFrom(t, netip.AddrFrom4([4]byte{127, 0, 2, byte(i%30 + 1)}).String(), s.Addr())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := serving.AskProbe(ctx, socket, "/healthz"); err != nil {
		t.Error(err)
	}
}
