package controlplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// component is a command of the control plane.
type component struct {
	name  string
	args  []string
	ports []port                      // that it listens on
	ready func(context.Context) error // nil once it is
}

// etcd does not write its log to the disk before it answers: nobody reads the data after a power cut.
func (p *ControlPlane) etcd() component {
	client, peer := p.ports.etcd.url("http"), p.ports.etcdPeer.url("http")
	return component{
		name: "etcd",
		args: []string{
			"--data-dir=" + p.file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		},
		ports: []port{p.ports.etcd, p.ports.etcdPeer},
		ready: p.answers(client + "/readyz"),
	}
}

func (p *ControlPlane) apiServer() component {
	args := []string{
		"--etcd-servers=" + p.ports.etcd.url("http"),
		"--advertise-address=" + loopback,
		"--endpoint-reconciler-type=none", // no Service "kubernetes" may lead to a loopback address
		"--client-ca-file=" + p.file(caFile),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--service-cluster-ip-range=" + servicesRange,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p.file(serviceAccountPubFile),
		"--service-account-signing-key-file=" + p.file(serviceAccountKeyFile),
		// A lab machine's kubelet is reached by a name of this host's loopback; its own address leads elsewhere.
		"--kubelet-preferred-address-types=Hostname,InternalIP",
	}
	args = append(args, switches("runtime-config", p.config.RuntimeConfig)...)
	return p.secure("kube-apiserver", p.ports.apiServer, args)
}

func (p *ControlPlane) scheduler() component {
	return p.secure("kube-scheduler", p.ports.scheduler, p.asClient(scheduler()))
}

func (p *ControlPlane) controllerManager() component {
	c := p.secure("kube-controller-manager", p.ports.controllerManager, append(p.asClient(controllerManager()),
		"--service-account-private-key-file="+p.file(serviceAccountKeyFile), "--root-ca-file="+p.file(caFile),
		"--use-service-account-credentials=true",
		// It starts by asking for a token for each controller, and its own usual limit makes that take seconds.
		"--kube-api-qps=500", "--kube-api-burst=1000"))
	// It answers seconds before its controllers work, and without this account no pod is admitted.
	c.ready = p.answers(p.ports.apiServer.url("https") + "/api/v1/namespaces/default/serviceaccounts/default")
	return c
}

// asClient returns the flags of a component that uses the API server, and also asks it about its own clients.
func (p *ControlPlane) asClient(u User) []string {
	path := p.kubeconfigPath(u, "")
	return []string{
		"--kubeconfig=" + path, "--authentication-kubeconfig=" + path, "--authorization-kubeconfig=" + path,
		"--leader-elect=false",
		// Right after its start the API server may not yet say by which rules it knows clients; all but their own probes
		// go by these files anyway.
		"--authentication-tolerate-lookup-failure=true",
	}
}

// secure returns a component of Kubernetes. All of them serve in the same way.
func (p *ControlPlane) secure(name string, at port, args []string) component {
	args = append(args,
		"--bind-address="+loopback, "--secure-port="+strconv.Itoa(at.number),
		"--tls-cert-file="+p.file(servingCertFile), "--tls-private-key-file="+p.file(servingKeyFile))
	args = append(args, switches("feature-gates", p.config.FeatureGates)...)
	return component{name: name, args: args, ports: []port{at}, ready: p.answers(at.url("https") + "/readyz")}
}

// switches are a flag's values in a fixed order, and no flag without values.
func switches(flag string, on map[string]bool) []string {
	if len(on) == 0 {
		return nil
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(on)) {
		list = append(list, fmt.Sprintf("%s=%t", name, on[name]))
	}
	return []string{"--" + flag + "=" + strings.Join(list, ",")}
}
