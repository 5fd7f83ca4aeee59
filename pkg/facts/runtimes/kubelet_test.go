package runtimes_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
)

const kubelet = "/usr/bin/kubelet\x00--config=/var/lib/kubelet/config.yaml\x00"

func TestKubelet(t *testing.T) {
	for about, c := range map[string]struct {
		of   files
		want runtimes.Kubelet
		bad  bool
	}{
		"a file that says nothing has good defaults": {of: files{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"}},
		"a file may be open": {
			of:   files{"var/lib/kubelet/config.yaml": "readOnlyPort: 10255\nauthentication: {anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n"},
			want: runtimes.Kubelet{ReadOnlyPort: 10255, Anonymous: true, AlwaysAllow: true},
		},
		"flags count more": {
			of: files{
				"var/lib/kubelet/config.yaml": "readOnlyPort: 10255\n",
			}.and(process("9", "kubelet", onNode(), kubelet+"--read-only-port\x000\x00--anonymous-auth=true\x00")),
			want: runtimes.Kubelet{Anonymous: true},
		},
		"drop-ins come over the file": {
			of: files{
				"var/lib/kubelet/config.yaml": "readOnlyPort: 10255\nauthorization: {mode: Webhook}\n",
				"etc/kubelet/d/10.conf":       "readOnlyPort: 0\nauthentication: {anonymous: {enabled: true}}\n",
				"etc/kubelet/d/20.conf":       "authorization: {mode: AlwaysAllow}\n",
				"etc/kubelet/d/readme":        "readOnlyPort: 1\n",
			}.and(process("9", "kubelet", onNode(), kubelet+"--config-dir=/etc/kubelet/d\x00")),
			want: runtimes.Kubelet{Anonymous: true, AlwaysAllow: true},
		},
		"without a file the flags' defaults are open": {
			of:   process("9", "kubelet", onNode(), "kubelet\x00"),
			want: runtimes.Kubelet{ReadOnlyPort: 10255, Anonymous: true, AlwaysAllow: true},
		},
		"it says nothing by a file that it does not read": {
			of:   files{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"}.and(process("9", "kubelet", onNode(), "kubelet\x00--authorization-mode=Webhook\x00")),
			want: runtimes.Kubelet{ReadOnlyPort: 10255, Anonymous: true},
		},
		"one in a container is not the node's": {
			of: files{"var/lib/kubelet/config.yaml": "readOnlyPort: 10255\n"}.and(process("8", "kubelet", onNode(), kubelet)).
				and(process("9", "kubelet", inPod(), kubelet+"--read-only-port=0\x00")),
			want: runtimes.Kubelet{ReadOnlyPort: 10255},
		},
		"nor is another user's": {
			of:   files{"var/lib/kubelet/config.yaml": "readOnlyPort: 10255\n"}.and(process("9", "kubelet", onNode(), kubelet+"--read-only-port=0\x00")).and(files{"proc/9/status": "Uid:\t1000\t0\t0\t0\n"}),
			want: runtimes.Kubelet{ReadOnlyPort: 10255},
		},
		"two that differ are one too many": {
			of: files{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"}.and(process("8", "kubelet", onNode(), kubelet)).
				and(process("9", "kubelet", onNode(), kubelet+"--read-only-port=1\x00")),
			bad: true,
		},
		"one with the node's processes and other mounts may be its own": {
			of: files{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"}.and(process("9", "kubelet", inHostPID(), kubelet)), bad: true,
		},
		"a copy without namespaces does not tell": {
			of:  files{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n", "proc/9/comm": "kubelet\n", "proc/9/cmdline": kubelet, "proc/9/status": "Uid:\t0\t0\t0\t0\n"},
			bad: true,
		},
		"what can't be parsed is said": {of: files{"var/lib/kubelet/config.yaml": "{"}, bad: true},
	} {
		k, ok := runtimes.FindKubelet(node(t, c.of))
		if !ok || (len(k.Damaged) > 0) != c.bad {
			t.Errorf("%s: there is %v, damaged %+v", about, ok, k.Damaged)
		}
		if k.ReadOnlyPort != c.want.ReadOnlyPort || k.Anonymous != c.want.Anonymous || k.AlwaysAllow != c.want.AlwaysAllow {
			t.Errorf("%s: it is %+v", about, k)
		}
	}
	if _, ok := runtimes.FindKubelet(node(t, nil)); ok {
		t.Error("a node without a kubelet has one")
	}
}

func TestFlagsOfTheKubeletAreReadAsItReadsThem(t *testing.T) {
	for flags, anonymous := range map[string]bool{
		"--anonymous-auth=true": true, "--anonymous-auth=1": true, "--anonymous-auth=True": true, "--anonymous_auth=t": true, "--anonymous-auth": true,
		"--anonymous-auth\x00false": true, "--anonymous-auth=maybe": true, "--anonymous-auth=0": false, "--anonymous-auth=F": false, "--v=2": false,
	} {
		of := files{"var/lib/kubelet/config.yaml": "kind: KubeletConfiguration\n"}.and(process("9", "kubelet", onNode(), kubelet+flags+"\x00"))
		if k, ok := runtimes.FindKubelet(node(t, of)); !ok || k.Anonymous != anonymous {
			t.Errorf("%q: anonymous is %t", flags, k.Anonymous)
		}
	}
}
