package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// As containerd's runc shim gives them, by go-runc's command.
const (
	shimDir    = "/run/containerd/io.containerd.runtime.v2.task/k8s.io/5e8f"
	shimLog    = shimDir + "/log.json"
	shimGlobal = "--root /run/containerd/runc/k8s.io --log " + shimLog + " --log-format json"
)

func TestShimsCallsAreUnderstood(t *testing.T) {
	for name, test := range map[string]struct {
		args string
		want call
	}{
		"create": {
			shimGlobal + " create --bundle " + shimDir + " --pid-file " + shimDir + "/init.pid 5e8f",
			call{command: "create", bundle: shimDir, id: "5e8f", log: shimLog},
		},
		"create with all of the shim's options": {
			shimGlobal + " --systemd-cgroup --rootless=true create --bundle " + shimDir + " --pid-file " + shimDir +
				"/init.pid --console-socket /tmp/pty/pty.sock --no-pivot --no-new-keyring --preserve-fds 2 5e8f",
			call{command: "create", bundle: shimDir, id: "5e8f", log: shimLog},
		},
		"flags joined with their values": {
			"--root=/run/runc --log=/l.json --log-format=json create --bundle=/b --pid-file=/p 5e8f",
			call{command: "create", bundle: "/b", id: "5e8f", log: "/l.json"},
		},
		"create by hand, in the bundle": {"create -b /b 5e8f", call{command: "create", bundle: "/b", id: "5e8f"}},
		"start":                         {shimGlobal + " start 5e8f", call{command: "start", id: "5e8f", log: shimLog}},
		"exec": {
			shimGlobal + " exec --process /tmp/runc-process42 --console-socket /tmp/pty.sock --detach --pid-file /p 5e8f",
			call{command: "exec", id: "5e8f", log: shimLog},
		},
		"kill":           {shimGlobal + " kill --all 5e8f 9", call{command: "kill", id: "5e8f", log: shimLog}},
		"ps":             {shimGlobal + " ps --format json 5e8f", call{command: "ps", id: "5e8f", log: shimLog}},
		"update":         {shimGlobal + " update --resources=- 5e8f", call{command: "update", id: "5e8f", log: shimLog}},
		"delete":         {shimGlobal + " delete 5e8f", call{command: "delete", id: "5e8f", log: shimLog}},
		"delete, forced": {shimGlobal + " delete --force 5e8f", call{command: "delete", id: "5e8f", log: shimLog}},
		"the version":    {"--version", call{}},
		"a flag whose value is missing": {
			shimGlobal + " create --bundle", call{command: "create", log: shimLog},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := parse(strings.Fields(test.args))
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(call{})); diff != "" {
				t.Errorf("runc %s (-want +got):\n%s", test.args, diff)
			}
		})
	}
}
