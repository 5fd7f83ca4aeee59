package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	// servicesRange is where the API server takes Services' addresses from, its own, the first, included.
	servicesRange, serviceAddress = "10.96.0.0/16", "10.96.0.1"

	// A certificate is valid from an hour ago, for a machine whose clock is late.
	certificateSlack, certificateLife = time.Hour, 7 * 24 * time.Hour
)

// Names of the files of the public key infrastructure.
const (
	caFile                = "ca.crt"
	servingCertFile       = "serving.crt"
	servingKeyFile        = "serving.key"
	serviceAccountKeyFile = "service-account.key"
	serviceAccountPubFile = "service-account.pub"
)

// authority is a certificate authority that is trusted for servers and clients alike. It lives in memory only.
type authority struct {
	cert    *x509.Certificate
	certPEM []byte
	key     *ecdsa.PrivateKey
}

// pair is a certificate and its key, in PEM.
type pair struct {
	cert, key []byte
}

func newAuthority() (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := certificate(pkix.Name{CommonName: "kata-vfio test control plane"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, certPEM: encode("CERTIFICATE", der), key: key}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

func certificate(subject pkix.Name) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		Subject:   subject,
		NotBefore: now.Add(-certificateSlack),
		NotAfter:  now.Add(certificateLife),
	}
}

// serving is for the components' servers, by every name that a client here or in a lab machine calls them.
func (a *authority) serving() (pair, error) {
	template := certificate(pkix.Name{CommonName: "kube-apiserver"})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, address := range []string{loopback, LabHost, serviceAddress} {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	template.DNSNames = []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	return a.issue(template)
}

// client is for a user, as Kubernetes reads one from a certificate: the name from CN, the groups from O.
func (a *authority) client(u User) (pair, error) {
	template := certificate(pkix.Name{CommonName: u.Name, Organization: u.Groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (pair, error) {
	key, err := newKey()
	if err != nil {
		return pair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	private, err := encodePrivate(key)
	if err != nil {
		return pair{}, err
	}
	return pair{cert: encode("CERTIFICATE", der), key: private}, nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodePrivate(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return encode("EC PRIVATE KEY", der), err
}

func encodePublic(key crypto.PublicKey) ([]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	return encode("PUBLIC KEY", der), err
}

// writePKI writes the files that the components read.
func (p *ControlPlane) writePKI() error {
	serving, err := p.authority.serving()
	if err != nil {
		return fmt.Errorf("issue a serving certificate: %w", err)
	}
	key, err := newKey()
	if err != nil {
		return fmt.Errorf("make a key for service accounts: %w", err)
	}
	private, err := encodePrivate(key)
	if err != nil {
		return fmt.Errorf("encode the key for service accounts: %w", err)
	}
	public, err := encodePublic(key.Public())
	if err != nil {
		return fmt.Errorf("encode the key for service accounts: %w", err)
	}
	for name, text := range map[string][]byte{
		caFile: p.authority.certPEM, servingCertFile: serving.cert, servingKeyFile: serving.key,
		serviceAccountKeyFile: private, serviceAccountPubFile: public,
	} {
		if err := os.WriteFile(p.file(name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (p *ControlPlane) file(name string) string { return filepath.Join(p.dir, name) }
