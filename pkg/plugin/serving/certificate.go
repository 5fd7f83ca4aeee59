package serving

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"sync/atomic"
	"time"
)

// selfSignedFor is longer than a plugin runs without a restart.
const selfSignedFor = 10 * 365 * 24 * time.Hour

// SelfSigned returns a TLS configuration with a new certificate for host. Clients can't
// verify it: it protects a token from eavesdroppers, not from an impostor of the server.
func SelfSigned(host string) (*tls.Config, error) {
	pair, err := selfSigned(host)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for metrics: %w", err)
	}
	return config(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return pair, nil }), nil
}

// selfSigned makes an ECDSA key and a certificate. The helper in client-go makes two RSA keys,
// which take seconds on a slow node, and RSA makes each handshake cost a millisecond.
func selfSigned(host string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfSignedFor), // clocks differ
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}, nil
}

// FromFiles returns a TLS configuration with the certificate and key of two PEM files.
// It reads them at each handshake, so that a renewed certificate needs no restart. If they
// can't be read then, it serves the last good pair.
func FromFiles(certFile, keyFile string) (*tls.Config, error) {
	var last atomic.Pointer[tls.Certificate]
	read := func() error {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err == nil {
			last.Store(&pair)
		}
		return err
	}
	if err := read(); err != nil {
		return nil, fmt.Errorf("read the certificate for metrics: %w", err)
	}
	return config(func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		_ = read() // half replaced: the next handshake reads both
		return last.Load(), nil
	}), nil
}

// config offers HTTP/1.1 only: scrapers need no HTTP/2, whose streams have been used for
// denial of service (CVE-2023-44487).
func config(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: certificate}
}
