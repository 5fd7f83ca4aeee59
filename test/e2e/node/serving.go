package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"syscall"
	"time"
)

// servingPair is a certificate and key for the kubelet's server, in PEM. The kubelet would make an RSA key by itself,
// which takes long under emulation. Nobody verifies it: the API server has no authority for kubelets.
func servingPair(name string) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(7 * 24 * time.Hour), // the machine's clock may be late
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return cert, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}), nil
}

// The kubelet's port is chosen where controlplane chooses, and for the same reason: Linux gives no outgoing connection
// a port from there.
const (
	lowestPort, portCount = 20000, 10000
	portTries             = 100
)

// freePort finds a port that is free on this host's loopback. The node reports one port only, which the API server
// uses here and the kubelet in the machine.
func freePort() (int, error) {
	var err error
	for range portTries {
		number := lowestPort + mathrand.IntN(portCount)
		var l net.Listener
		l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", number))
		if err == nil {
			return number, l.Close()
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	return 0, fmt.Errorf("find a free port for the kubelet: %w", err)
}
