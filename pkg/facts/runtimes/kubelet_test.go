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
				"proc/9/comm":                 "kubelet\n", "proc/9/cmdline": kubelet + "--read-only-port\x000\x00--anonymous-auth=true\x00",
			},
			want: runtimes.Kubelet{Anonymous: true},
		},
		"drop-ins come over the file": {
			of: files{
				"var/lib/kubelet/config.yaml": "readOnlyPort: 10255\nauthorization: {mode: Webhook}\n",
				"etc/kubelet/d/10.conf":       "readOnlyPort: 0\nauthentication: {anonymous: {enabled: true}}\n",
				"etc/kubelet/d/20.conf":       "authorization: {mode: AlwaysAllow}\n",
				"etc/kubelet/d/readme":        "readOnlyPort: 1\n",
				"proc/9/comm":                 "kubelet\n", "proc/9/cmdline": kubelet + "--config-dir=/etc/kubelet/d\x00",
			},
			want: runtimes.Kubelet{Anonymous: true, AlwaysAllow: true},
		},
		"without a file the flags' defaults are open": {
			of:   files{"proc/9/comm": "kubelet\n", "proc/9/cmdline": "kubelet\x00"},
			want: runtimes.Kubelet{ReadOnlyPort: 10255, Anonymous: true, AlwaysAllow: true},
		},
		"what can't be parsed is said": {of: files{"var/lib/kubelet/config.yaml": "{"}, bad: true},
	} {
		k, ok := runtimes.KubeletOf(node(t, c.of))
		if !ok || (len(k.Damaged) > 0) != c.bad {
			t.Errorf("%s: there is %v, damaged %+v", about, ok, k.Damaged)
		}
		if k.ReadOnlyPort != c.want.ReadOnlyPort || k.Anonymous != c.want.Anonymous || k.AlwaysAllow != c.want.AlwaysAllow {
			t.Errorf("%s: it is %+v", about, k)
		}
	}
	if _, ok := runtimes.KubeletOf(node(t, nil)); ok {
		t.Error("a node without a kubelet has one")
	}
}
