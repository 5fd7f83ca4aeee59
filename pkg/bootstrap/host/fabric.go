package host

import (
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	fabricPart         = "fabric"
	vendorFabricConfig = "usr/share/nvidia/nvswitch/fabricmanager.cfg"
)

// fabricSocket returns the path of the socket on which the plugin reaches Fabric Manager by default.
func fabricSocket() string { return strings.TrimPrefix(v1alpha1.DefaultFabricAddress, "unix:") }

// fabricSettings returns Fabric Manager's settings for partitions (NVIDIA Fabric Manager User Guide). Its API has no password,
// so it is on a socket in a directory that only root can enter. The service of fabricStart sets FABRIC_MODE_RESTART at each
// start.
func fabricSettings() [][2]string {
	return [][2]string{
		{"FABRIC_MODE", "1"},
		{"FABRIC_MODE_RESTART", "0"},
		{"STATE_FILE_NAME", "/var/lib/kata-vfio-fabric/fabricmanager.state"},
		{"FM_CMD_UNIX_SOCKET_PATH", fabricSocket()},
		{"FM_CMD_BIND_INTERFACE", "127.0.0.1"},
	}
}

// fabricStart is a service that runs before each start of Fabric Manager. If the journal of this boot has a partition, the
// start is a restart under running VMs: Fabric Manager then waits for the list of active partitions, and keeps their links.
// Otherwise it initializes the fabric. After a boot no partition is active, whatever the journal has.
//
// The service writes a copy of the configuration with that setting. Fabric Manager sees the copy in place of the vendor's file
// in /usr, which is not changed.
const fabricStart = `[Unit]
Description=Choose how NVIDIA's Fabric Manager starts, by the claims of kata-vfio

[Service]
Type=oneshot
RuntimeDirectory=kata-vfio-fabric
RuntimeDirectoryMode=0700
RuntimeDirectoryPreserve=yes
StateDirectory=kata-vfio-fabric
StateDirectoryMode=0700
ExecStart=/bin/sh -ec 'boot=$$(cat /proc/sys/kernel/random/boot_id); restart=0; \
  for record in /var/lib/kata-vfio/journal/*.json; do \
    if grep -qsF "$$boot" "$$record" && grep -qsF "(modules " "$$record"; then restart=1; fi; \
  done; \
  sed "s/^FABRIC_MODE_RESTART=.*/FABRIC_MODE_RESTART=$$restart/" /etc/kata-vfio/fabricmanager.cfg >/run/kata-vfio-fabric/fabricmanager.cfg'
`

// fabricDropIn makes Fabric Manager start after the service of fabricStart, and start again whenever it ends: without the list
// of active partitions it exits after 60 s, and the plugin may take longer to start.
const fabricDropIn = `[Unit]
Requires=kata-vfio-fabric.service
After=kata-vfio-fabric.service
StartLimitIntervalSec=0

[Service]
BindReadOnlyPaths=/run/kata-vfio-fabric/fabricmanager.cfg:/usr/share/nvidia/nvswitch/fabricmanager.cfg
Restart=always
RestartSec=10
`

// fabric configures Fabric Manager for partitions. The configuration takes effect with the next boot, because a restart of
// Fabric Manager would initialize the fabric even under running VMs.
func (n *node) fabric() {
	if !n.blueprint.Fabric.Partitions {
		return
	}
	data, err := n.tree.ReadAtMost(n.real(vendorFabricConfig), 1<<20)
	if err != nil {
		n.problem(state.Problem{
			Part: fabricPart, Code: rule.NoFabricManager, Fatal: true, Path: vendorFabricConfig,
			Text: "the blueprint asks for partitions of NVIDIA's Fabric Manager, whose configuration can't be read: " + err.Error(),
			Fix:  "install nvidia-fabricmanager in the version of the driver, or remove `fabric` from the blueprint",
		})
		return
	}
	then := []state.FollowUp{state.UnitsReload, state.Reboot}
	const units = "etc/systemd/system/"
	for _, f := range []state.File{
		{Path: facts.OurFabricConfig, Content: []byte(header + withSettings(string(data), fabricSettings())), Why: "Fabric Manager makes partitions for VMs, and only root reaches its API"},
		{Path: units + "kata-vfio-fabric.service", Content: []byte(header + fabricStart), Why: "chooses whether Fabric Manager resumes, by the claims that have partitions"},
		{Path: facts.FabricDropIn, Content: []byte(header + fabricDropIn), Why: "starts Fabric Manager in the chosen way"},
	} {
		f.Part, f.Then = fabricPart, then
		n.file(f)
	}
	n.activation()
	n.managedSwitches()
	n.fabricMap()
}

// fabricMap records as a fact whether the node has the map that says which GPU is at which place of the board. Boards of the
// A100 need no map.
func (n *node) fabricMap() {
	value := "captured"
	if _, err := n.tree.ReadAtMost(n.real(fabric.MapFile), 1<<20); err != nil {
		value = "not captured; run `kata-vfio-bootstrap modules --write` while NVIDIA's driver has all GPUs"
	}
	n.fact(fabricPart, "map of modules", value, "/"+fabric.MapFile)
}

// withSettings returns a configuration of lines KEY=VALUE with these settings. Each line with such a key gets the value, because
// Fabric Manager takes the last one; a key without a line gets one at the end.
func withSettings(content string, settings [][2]string) string {
	missing := slices.Clone(settings)
	var b strings.Builder
	for line := range strings.Lines(content) {
		key, _, found := strings.Cut(line, "=")
		i := slices.IndexFunc(settings, func(s [2]string) bool { return found && s[0] == strings.TrimSpace(key) })
		if i >= 0 {
			line = settings[i][0] + "=" + settings[i][1] + "\n"
			missing = slices.DeleteFunc(missing, func(s [2]string) bool { return s == settings[i] })
		}
		b.WriteString(line)
	}
	if len(missing) > 0 && content != "" && !strings.HasSuffix(content, "\n") {
		b.WriteByte('\n')
	}
	for _, s := range missing {
		b.WriteString(s[0] + "=" + s[1] + "\n")
	}
	return b.String()
}
