package controlplane

import (
	"fmt"
	"net/url"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// User is a client of the API server. Its certificate is issued when it is needed, for any name: RBAC decides what the user may
// do.
type User struct {
	Name   string
	Groups []string
}

// Admin may do everything.
func Admin() User { return User{Name: "admin", Groups: []string{"system:masters"}} }

// NodeIdentity is the kubelet of a node, which need not exist yet. The Node authorizer and NodeRestriction apply to it.
func NodeIdentity(node string) User {
	return User{Name: "system:node:" + node, Groups: []string{"system:nodes"}}
}

func scheduler() User         { return User{Name: "system:kube-scheduler"} }
func controllerManager() User { return User{Name: "system:kube-controller-manager"} }

// RESTConfig is a user's access from this host, without a limit of the client's own on the rate of requests.
func (p *ControlPlane) RESTConfig(u User) (*rest.Config, error) {
	client, err := p.authority.client(u)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for %s: %w", u.Name, err)
	}
	return &rest.Config{
		Host:            p.Server(loopback),
		TLSClientConfig: rest.TLSClientConfig{CAData: p.CA(), CertData: client.cert, KeyData: client.key},
		QPS:             -1,
	}, nil
}

// Kubeconfig is a user's access to the API server at a URL as of Server, in the text of a kubeconfig file that refers
// to no other file. The URL "" is the one for this host.
func (p *ControlPlane) Kubeconfig(u User, server string) ([]byte, error) {
	client, err := p.authority.client(u)
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for %s: %w", u.Name, err)
	}
	if server == "" {
		server = p.Server(loopback)
	}
	const name = "kata-vfio-test"
	return clientcmd.Write(api.Config{
		Clusters:       map[string]*api.Cluster{name: {Server: server, CertificateAuthorityData: p.CA()}},
		AuthInfos:      map[string]*api.AuthInfo{name: {ClientCertificateData: client.cert, ClientKeyData: client.key}},
		Contexts:       map[string]*api.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
}

// KubeconfigFile writes Kubeconfig's text to a file and returns its path. Stop removes it.
func (p *ControlPlane) KubeconfigFile(u User, server string) (string, error) {
	text, err := p.Kubeconfig(u, server)
	if err != nil {
		return "", err
	}
	path := p.kubeconfigPath(u, server)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("write a kubeconfig for %s: %w", u.Name, err)
	}
	return path, nil
}

// kubeconfigPath differs for each user and server: a user's name may have a slash.
func (p *ControlPlane) kubeconfigPath(u User, server string) string {
	name := url.PathEscape(u.Name)
	if server != "" {
		name += "@" + url.PathEscape(server)
	}
	return p.file(name + ".kubeconfig")
}
