package serving

import (
	"crypto/tls"
	"fmt"
	"sync/atomic"

	certutil "k8s.io/client-go/util/cert"
)

// SelfSigned returns a TLS configuration with a certificate that is made now for host. It
// keeps a token from those who listen, not from those who answer in the server's place.
func SelfSigned(host string) (*tls.Config, error) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for metrics: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for metrics: %w", err)
	}
	return config(func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }), nil
}

// FromFiles returns a TLS configuration with the certificate and key of two PEM files.
// They are read at each handshake, since both are replaced while the plugin runs. Where
// they can't be read then, those that were read last still serve.
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

// config speaks HTTP/1.1 alone: nobody scrapes in streams, and they have cost servers dear.
func config(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: certificate}
}
