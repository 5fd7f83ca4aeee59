//go:build e2e

package e2e

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// podRenderings are those of values that stand in the plugin's pods.
func podRenderings() map[string]rendering {
	return map[string]rendering{
		"a pod that is privileged": {check: checkPrivileged},
		"a pod that is not privileged": {
			values: `
plugin:
  privileged: false
  seLinuxOptions: {type: spc_t}
  appArmorProfile: {type: Localhost, localhostProfile: kata-vfio}`,
			check: checkUnprivileged,
		},
		"a kubelet elsewhere": {
			values: "kubelet: {dir: /var/lib/k0s/kubelet}",
			check: wantPod("/var/lib/k0s/kubelet/plugins/kata-vfio.dev", "/var/lib/k0s/kubelet/plugins_registry",
				"/var/lib/k0s/kubelet/pod-resources/kubelet.sock"),
		},
		"a pod-resources socket elsewhere": {
			values: "plugin: {sockets: {podResources: /run/kata/devices.sock}}", check: wantPod("/run/kata/devices.sock"),
		},
		"a kubelet's pod-resources socket elsewhere": {
			values: "plugin: {sockets: {kubeletPodResources: /run/k3s/pod-resources/kubelet.sock}}",
			check:  wantPod("/run/k3s/pod-resources/kubelet.sock"),
		},
		"an NRI socket elsewhere": {
			values: "plugin: {sockets: {nri: /run/crio/nri.sock}}", check: wantPod("/run/crio/nri.sock"),
		},
		"all sockets in one directory": {
			values: "plugin: {sockets: {podResources: /run/x/a.sock, kubeletPodResources: /run/x/b.sock, nri: /run/x/c.sock}}",
			check:  wantPod("/run/x/a.sock", "/run/x/b.sock", "/run/x/c.sock"),
		},
		"an NRI socket beside ours": {
			values: "plugin: {sockets: {nri: /run/kata-vfio/nri.sock}}", check: wantPod("/run/kata-vfio/nri.sock"),
		},
		"probes of a slow node": {
			values: "probes: {startupPeriodSeconds: 20, readinessPeriodSeconds: 15, livenessPeriodSeconds: 40}",
			check: func(t *testing.T, got rendered) {
				pod := pluginPod(t, got)
				checkProbes(t, pod)
				c := pod.Containers[0]
				periods := []int32{c.StartupProbe.PeriodSeconds, c.ReadinessProbe.PeriodSeconds, c.LivenessProbe.PeriodSeconds}
				if want := []int32{20, 15, 40}; !slices.Equal(periods, want) {
					t.Errorf("periods: got %d, want %d", periods, want)
				}
			},
		},
		"the node's pci.ids": {values: "plugin: {pciIDsDir: /usr/share/misc}", check: wantPod("/usr/share/misc/pci.ids")},
		"an API server that is reached without a service proxy": {
			values: "plugin: {apiServer: {host: 'fd00::10', port: 6443}}\nkai: {countGPUs: true}\naudit: {enabled: true, probe: {enabled: false}}",
			check: func(t *testing.T, got rendered) {
				controller := object[appsv1.Deployment](t, got, "Deployment", "kata-vfio-controller").Spec.Template.Spec
				audit := object[batchv1.CronJob](t, got, "CronJob", "kata-vfio-audit").Spec.JobTemplate.Spec.Template.Spec
				for name, pod := range map[string]corev1.PodSpec{"plugin": pluginPod(t, got), "controller": controller, "audit": audit} {
					for _, want := range []corev1.EnvVar{
						{Name: "KUBERNETES_SERVICE_HOST", Value: "fd00::10"}, {Name: "KUBERNETES_SERVICE_PORT", Value: "6443"},
					} {
						if env := pod.Containers[0].Env; !slices.Contains(env, want) {
							t.Errorf("%s: the environment %+v lacks %+v", name, env, want)
						}
					}
				}
			},
		},
		"further trusted namespaces": {
			values: "plugin: {exemptNamespaces: [kube-system, monitoring]}",
			check: func(t *testing.T, got rendered) {
				wantArgs(t, got, "--exempt-namespace=kube-system,monitoring,"+system)
			},
		},
		"further flags": {
			values: "plugin: {extraArgs: ['--holder-wait=20s', '--hot-plug'], logFormat: text}\nmetrics: {port: 9998}",
			check: func(t *testing.T, got rendered) {
				wantArgs(t, got, "--holder-wait=20s", "--hot-plug", "--log-format=text", "--metrics-listen=:9998")
			},
		},
		"debug log, spans and profiles": {
			values: "plugin: {logLevel: debug, pprof: true, otlpEndpoint: 'http://collector:4317'}",
			check: func(t *testing.T, got rendered) {
				wantArgs(t, got, "--log-level=debug", "--otlp-endpoint=http://collector:4317", "--pprof=127.0.0.1:9457")
			},
		},
		"checks of another profile, that taint nothing": {
			values: "plugin: {audit: {profile: single-tenant, taint: 'off', every: 5m}}",
			check: func(t *testing.T, got rendered) {
				wantArgs(t, got, "--audit-profile=single-tenant", "--audit-taint=off", "--audit-every=5m")
			},
		},
		"a ledger that forgets, and knows no names": {
			values: "plugin: {ledger: {retention: 720h, maxBytes: 67108864, pseudonyms: true}}",
			check: func(t *testing.T, got rendered) {
				wantArgs(t, got, "--ledger-retention=720h", "--ledger-max-bytes=67108864", "--ledger-pseudonyms")
			},
		},
		"a ledger that keeps everything": {
			values: "plugin: {ledger: {retention: '', maxBytes: 0}}",
			check: func(t *testing.T, got rendered) {
				wantArgs(t, got, "--ledger-retention=0", "--ledger-max-bytes=0")
			},
		},
		"a pinned image": {
			values: "image: {digest: 'sha256:" + strings.Repeat("0", 64) + "'}\nimagePullSecrets: [{name: a}, {name: b}]",
			check: func(t *testing.T, got rendered) {
				pod := pluginPod(t, got)
				if !strings.HasSuffix(pod.Containers[0].Image, ":0.1.0@sha256:"+strings.Repeat("0", 64)) || len(pod.ImagePullSecrets) != 2 {
					t.Errorf("the image is %s, its secrets %v", pod.Containers[0].Image, pod.ImagePullSecrets)
				}
			},
		},
		"other nodes": {
			values: `
plugin:
  nodeSelector: {kata-vfio.dev/node: null, team: a}
  tolerations: []
  resources: {limits: null}
  podLabels: {team: a}
  podAnnotations: {team: a}`,
			check: func(t *testing.T, got rendered) {
				pod := pluginPod(t, got)
				want := map[string]string{"kubernetes.io/os": "linux", "team": "a"}
				if diff := cmp.Diff(want, pod.NodeSelector); diff != "" || len(pod.Tolerations) > 0 || pod.Containers[0].Resources.Limits != nil {
					t.Errorf("the node selector differs (-want +got), or there are tolerations or limits:\n%s", diff)
				}
			},
		},
		"nodes that NFD finds": {
			values: "nodeSelection: {mode: NFD, nfdLabels: [feature.node.kubernetes.io/pci-0302_10de.present, example.com/vfio]}",
			check:  checkNFD,
		},
		"what a site adds": {values: additions, check: checkAdditions},
		"an account of the site's": {
			values: "serviceAccount: {create: false, name: vfio}",
			check: func(t *testing.T, got rendered) {
				lacks("ServiceAccount", "")(t, got)
				has(t, got, "ClusterRoleBinding", plugin, `"name":"vfio"`)
				has(t, got, "ValidatingAdmissionPolicy", "slices.kata-vfio.dev", "'system:serviceaccount:kata-vfio-system:vfio'")
				if name := pluginPod(t, got).ServiceAccountName; name != "vfio" {
					t.Errorf("the account is %s", name)
				}
			},
		},
		"address pools": {
			values: pools,
			check: func(t *testing.T, got rendered) {
				wantPod("/opt/cni/bin", "/usr/lib/cni", "/var/lib/cni", "/etc/cni/net.d/whereabouts.d")(t, got)
			},
		},
		"address pools in the nodes' own files": {
			values: "{nodeConfig: {source: Node}, plugin: {cni: {mount: true}}}", check: wantPod("/opt/cni/bin", "/var/lib/cni"),
		},
		"no address pools": {
			check: func(t *testing.T, got rendered) {
				if reaches(pluginPod(t, got), "/opt/cni/bin") || reaches(pluginPod(t, got), "/var/lib/cni") {
					t.Error("the plugin reaches what it has no use for")
				}
			},
		},
		"a config on each node": {
			values: "nodeConfig: {source: Node}",
			check: func(t *testing.T, got rendered) {
				wantPod("/etc/kata-vfio/node.yaml")(t, got)
				lacks("ConfigMap", "")(t, got)
				if slices.ContainsFunc(pluginPod(t, got).Containers[0].Args, func(a string) bool { return strings.HasPrefix(a, "--config") }) {
					t.Error("--config makes a node without the file an error")
				}
			},
		},
	}
}

// additions are values that add to what the chart has.
const additions = `
nameOverride: site
commonLabels: {team: a, app.kubernetes.io/name: other}
serviceAccount: {annotations: {a: b}}
audit: {nodes: {enabled: true}}
bootstrap: {enabled: true}
plugin:
  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {a: b}}}]}}
  updateStrategy: {type: OnDelete, rollingUpdate: null}
  podLabels: {app.kubernetes.io/component: other, pod: a}
  extraEnv: [{name: A, value: b}]
  extraVolumes: [{name: more, emptyDir: {}}]
  extraVolumeMounts: [{name: more, mountPath: /more}]`

func checkAdditions(t *testing.T, got rendered) {
	for _, o := range got.objects {
		if o.GetLabels()["team"] != "a" || o.GetLabels()["app.kubernetes.io/name"] != "kata-vfio" {
			t.Errorf("%s %s has the labels %v", o.GetKind(), o.GetName(), o.GetLabels())
		}
	}
	for _, name := range []string{"site-plugin", "site-audit-node", "site-bootstrap"} {
		set := object[appsv1.DaemonSet](t, got, "DaemonSet", name)
		labels := set.Spec.Template.Labels
		for key, want := range set.Spec.Selector.MatchLabels {
			if labels[key] != want {
				t.Errorf("%s: the pods' label %s is %q, and the selector asks for %q", name, key, labels[key], want)
			}
		}
		for key, want := range map[string]string{
			"team": "a", "app.kubernetes.io/instance": release, "app.kubernetes.io/version": "0.1.0",
			"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/part-of": "kata-vfio",
		} {
			if labels[key] != want {
				t.Errorf("%s: the pods' label %s is %q, want %q", name, key, labels[key], want)
			}
		}
		if set.Spec.Template.Spec.Affinity == nil || set.Spec.Template.Spec.Affinity.PodAntiAffinity == nil {
			t.Errorf("%s has no affinity", name)
		}
	}
	has(t, got, "DaemonSet", "site-plugin", `"updateStrategy":{"type":"OnDelete"}`, `{"name":"A","value":"b"}`, `{"emptyDir":{},"name":"more"}`,
		`{"mountPath":"/more","name":"more"}`, `"pod":"a"`, `"serviceAccountName":"site-plugin"`)
	has(t, got, "ServiceAccount", "site-plugin", `"annotations":{"a":"b"}`)
}

func checkNFD(t *testing.T, got rendered) {
	pod := pluginPod(t, got)
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 2 || terms[1].MatchExpressions[0].Key != "example.com/vfio" {
		t.Errorf("the nodes are %+v", terms)
	}
	if diff := cmp.Diff(map[string]string{"kubernetes.io/os": "linux"}, pod.NodeSelector); diff != "" {
		t.Errorf("the node selector (-want +got):\n%s", diff)
	}
}

// pools are values with an address pool, and with all that it may need.
const pools = `
nodeConfig:
  cniBinDirs: [/opt/cni/bin, /usr/lib/cni]
  addressPools: [{name: tenants, ipam: {type: whereabouts}}]
plugin: {cni: {configDir: /etc/cni/net.d/whereabouts.d}}`

// localImages are values with every pod of the chart.
const localImages = "audit: {enabled: true, nodes: {enabled: true}}\nbootstrap: {enabled: true}\nguestnet: {inject: true}\n"

// pullPolicies are the pull policies of a rendering, those in policies that make containers included.
func pullPolicies(r rendered) []string {
	var all []string
	for _, match := range regexp.MustCompile(`imagePullPolicy: '?([A-Za-z]+)`).FindAllStringSubmatch(r.text, -1) {
		all = append(all, match[1])
	}
	return all
}

// containerd asks https://localhost/v2/ without TLS verification for an image that is not there, and a tenant's pod may
// serve that port of the node: an image of such a name is never asked of a registry.
func TestImagesOnLocalhostArePulledFromNowhere(t *testing.T) {
	digest := "digest: 'sha256:" + strings.Repeat("0", 64) + "'"
	for name, tt := range map[string]struct {
		values string
		want   string
	}{
		"by default":                 {"", "IfNotPresent"},
		"by a name of the node":      {"image: {repository: localhost/a}\nguestnet: {inject: true, image: {repository: localhost/b}}", "Never"},
		"by a port of the node":      {"image: {repository: 'localhost:5000/a'}\nguestnet: {inject: true, image: {repository: 127.0.0.1/b}}", "Never"},
		"as said":                    {"image: {pullPolicy: Never}\nguestnet: {inject: true, image: {pullPolicy: Never}}", "Never"},
		"from a registry":            {"image: {repository: r.example.com/a}\nguestnet: {inject: true, image: {repository: localhost.example.com/b}}", "IfNotPresent"},
		"from a registry each time":  {"image: {repository: r.example.com/a, pullPolicy: Always}\nguestnet: {inject: true, image: {repository: r.example.com/b, pullPolicy: Always}}", "Always"},
		"by a digest, from anywhere": {"image: {repository: localhost/a, pullPolicy: IfNotPresent, " + digest + "}\nguestnet: {inject: true, image: {repository: localhost/b, pullPolicy: IfNotPresent, " + digest + "}}", "IfNotPresent"},
	} {
		t.Run(name, func(t *testing.T) {
			values := tt.values
			for line := range strings.SplitSeq(localImages, "\n") {
				if key, _, _ := strings.Cut(line, ":"); !strings.Contains(values, key+":") {
					values += "\n" + line
				}
			}
			got := pullPolicies(render(t, values, mutating("v1")...))
			// The plugin, the audits of the cluster and of nodes, bootstrap, and the init container by policy.
			if want := slices.Repeat([]string{tt.want}, 5); !slices.Equal(got, want) {
				t.Errorf("the pull policies are %v, want %v", got, want)
			}
		})
	}
	for _, values := range []string{
		"image: {repository: localhost/a, pullPolicy: IfNotPresent}", "image: {repository: localhost/a, pullPolicy: Always}", "image: {repository: 'localhost:5000/a', pullPolicy: Always}",
		"guestnet: {inject: true, image: {repository: localhost/a, pullPolicy: IfNotPresent}}",
	} {
		if _, err := template(t, values, mutating("v1")...); err == nil || !strings.Contains(err.Error(), "any pod that serves a port of the node could be that registry") {
			t.Errorf("%s: %v", values, err)
		}
	}
}

func pluginPod(t *testing.T, r rendered) corev1.PodSpec {
	t.Helper()
	name := plugin
	for _, o := range r.objects {
		if o.GetKind() == "DaemonSet" && strings.HasSuffix(o.GetName(), "-plugin") { // nameOverride
			name = o.GetName()
		}
	}
	return object[appsv1.DaemonSet](t, r, "DaemonSet", name).Spec.Template.Spec
}

// checkProbes checks that the kubelet's probes need no port, and bear a node under load: the program is ended after minutes without an
// answer only.
func checkProbes(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	c := &pod.Containers[0]
	socket := "--probe-socket=/run/kata-vfio-probes/probes.sock"
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe == nil {
			continue
		}
		if probe.Exec == nil || !slices.Contains(probe.Exec.Command, socket) || probe.TimeoutSeconds < 30 || probe.PeriodSeconds < 5 {
			t.Errorf("a probe is %+v", probe)
		}
	}
	if live := c.LivenessProbe; live.PeriodSeconds*live.FailureThreshold < 300 {
		t.Errorf("the program is ended after %d failures, %d s apart", live.FailureThreshold, live.PeriodSeconds)
	}
	if start := c.StartupProbe; start != nil && start.PeriodSeconds*start.FailureThreshold < 600 {
		t.Errorf("the program is ended in its start after %d failures, %d s apart", start.FailureThreshold, start.PeriodSeconds)
	}
	for _, p := range c.Ports {
		if p.Name != "metrics" {
			t.Errorf("the port %s is open", p.Name)
		}
	}
	if !slices.Contains(c.Args, socket) || !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
		return v.Name == "probes" && v.EmptyDir != nil && v.EmptyDir.Medium == corev1.StorageMediumMemory
	}) {
		t.Errorf("the program has no socket for its probes: %q, %+v", c.Args, pod.Volumes)
	}
}

func checkPrivileged(t *testing.T, got rendered) {
	pod := pluginPod(t, got)
	checkProbes(t, pod)
	security := pod.Containers[0].SecurityContext
	if !pod.HostPID || pod.HostNetwork || !*security.Privileged || !*security.ReadOnlyRootFilesystem || security.Capabilities != nil {
		t.Errorf("the pod is %+v, its container's rights are %+v", pod, security)
	}
	wantPod()(t, got)
}

func checkUnprivileged(t *testing.T, got rendered) {
	yes, no, root := true, false, int64(0)
	want := &corev1.SecurityContext{
		Privileged: &no, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, RunAsUser: &root, RunAsGroup: &root,
		Capabilities: &corev1.Capabilities{
			Drop: []corev1.Capability{"ALL"},
			Add:  []corev1.Capability{"SYS_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH", "SYS_MODULE", "SYS_CHROOT", "NET_ADMIN"},
		},
		SeccompProfile:  &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		SELinuxOptions:  &corev1.SELinuxOptions{Type: "spc_t"},
		AppArmorProfile: &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("kata-vfio")},
	}
	if diff := cmp.Diff(want, pluginPod(t, got).Containers[0].SecurityContext); diff != "" {
		t.Errorf("the container's rights differ (-want +got):\n%s", diff)
	}
	wantPod()(t, got)
}

// paths are flags that name files of the node, with the plugin's defaults.
func paths() map[string]string {
	return map[string]string{
		"--plugin-dir":            "/var/lib/kubelet/plugins/kata-vfio.dev",
		"--registry-dir":          "/var/lib/kubelet/plugins_registry",
		"--pod-resources-socket":  "/run/kata-vfio/pod-resources.sock",
		"--kubelet-pod-resources": "/var/lib/kubelet/pod-resources/kubelet.sock",
		"--nri-socket":            "/var/run/nri/nri.sock",
	}
}

// wantPod checks that every path that the plugin is told is the node's own, by the same name, and that the paths of
// the values are among those that it reaches.
func wantPod(of ...string) func(*testing.T, rendered) {
	return func(t *testing.T, got rendered) {
		t.Helper()
		pod, told := pluginPod(t, got), paths()
		for _, arg := range pod.Containers[0].Args {
			flag, value, _ := strings.Cut(arg, "=")
			if _, ok := told[flag]; ok {
				told[flag] = value
			}
		}
		all := slices.Collect(maps.Values(told))
		for _, path := range append(all, append(of, "/etc/cdi")...) {
			if !reaches(pod, path) {
				t.Errorf("the pod does not reach %s of the node: %+v", path, pod.Containers[0].VolumeMounts)
			}
		}
		for _, path := range of {
			if strings.HasSuffix(path, ".sock") && !slices.Contains(all, path) {
				t.Errorf("the plugin is not told of %s: %q", path, pod.Containers[0].Args)
			}
		}
	}
}

// reaches tells whether a path in the container is the node's.
func reaches(pod corev1.PodSpec, path string) bool {
	for _, mount := range pod.Containers[0].VolumeMounts {
		if path != mount.MountPath && !strings.HasPrefix(path, mount.MountPath+"/") {
			continue
		}
		if slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == mount.Name && v.HostPath != nil && v.HostPath.Path == mount.MountPath
		}) {
			return true
		}
	}
	return false
}

// What it only looks at, it could change by mistake or by an intruder's will.
func TestPluginWritesNowhereElseOnTheNode(t *testing.T) {
	want := []string{
		"/run/kata-vfio-probes", // the pod's, in memory
		"/sys", "/var/lib/kubelet/plugins/kata-vfio.dev", "/var/lib/kubelet/plugins_registry", "/run/cdi", "/run/kata-vfio", "/var/lib/kata-vfio",
	}
	for values, also := range map[string][]string{
		"nodeConfig: {source: Node}\nplugin: {pciIDsDir: /usr/share/misc}": nil, pools: {"/var/lib/cni"},
	} {
		var got []string
		for _, mount := range pluginPod(t, render(t, values)).Containers[0].VolumeMounts {
			if !mount.ReadOnly {
				got = append(got, mount.MountPath)
			}
		}
		if diff := cmp.Diff(slices.Concat(want, also), got); diff != "" {
			t.Errorf("the writable directories differ (-want +got):\n%s", diff)
		}
	}
}

func wantArgs(t *testing.T, got rendered, want ...string) {
	t.Helper()
	args := pluginPod(t, got).Containers[0].Args
	for _, arg := range want {
		if !slices.Contains(args, arg) {
			t.Errorf("the arguments %q lack %s", args, arg)
		}
	}
}

// The audit of nodes may read all of a node, and write its reports.
func TestAuditOfNodesReadsOnly(t *testing.T) {
	pod := object[appsv1.DaemonSet](t, render(t, "audit: {nodes: {enabled: true}}"), "DaemonSet", "kata-vfio-audit-node").Spec.Template.Spec
	c := &pod.Containers[0]
	for _, m := range c.VolumeMounts {
		switch {
		case m.MountPath == "/reports" && !m.ReadOnly:
		case m.MountPath == "/waivers" && m.ReadOnly: // a ConfigMap's, with nothing mounted below
		case m.ReadOnly && m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == corev1.RecursiveReadOnlyIfPossible:
		default:
			t.Errorf("it may write to %s", m.MountPath)
		}
	}
	want := []corev1.Capability{"SYS_ADMIN", "SYS_PTRACE", "DAC_READ_SEARCH", "NET_ADMIN"}
	if s := c.SecurityContext; *s.Privileged || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Add, want) {
		t.Errorf("its privileges are %+v", s)
	}
	path := filepath.Join(t.TempDir(), "kata-vfio-audit")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/kata-vfio/kata-vfio/cmd/kata-vfio-audit")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), path, append(c.Args, "--help")...).CombinedOutput(); err != nil {
		t.Errorf("the audit does not take %q: %v: %s", c.Args, err, out)
	}
}

// The command line that the chart writes is the plugin's own.
func TestPluginKnowsEveryFlag(t *testing.T) {
	path := filepath.Join(t.TempDir(), plugin)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/kata-vfio/kata-vfio/cmd/kata-vfio-plugin")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	table := podRenderings()
	for _, name := range slices.Sorted(maps.Keys(table)) {
		c := pluginPod(t, render(t, table[name].values)).Containers[0]
		for _, args := range [][]string{c.Args, c.LivenessProbe.Exec.Command[1:], c.ReadinessProbe.Exec.Command[1:]} {
			// All flags are read before help is given.
			if out, err := exec.CommandContext(t.Context(), path, append(args, "--help")...).CombinedOutput(); err != nil {
				t.Errorf("%s: the plugin does not take %q: %v: %s", name, args, err, out)
			}
		}
	}
}
