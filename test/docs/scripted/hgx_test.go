package scripted_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

const hgxGuide = "deploy/guides/hgx.md"

// TestHGXGuide follows the guide from a bare machine to the audit of its tenant.
func TestHGXGuide(t *testing.T) {
	m := newMachine(t, board.IdleHGX(t, 0), nil)
	m.Script("usr/local/bin/kata-vfio-fabric", "echo kata-vfio-fabric \"$@\" >> /tmp/others\n")
	// A file of this machine does not become shorter as one of sysfs does: the running methods are set already, and the rule for udev is what
	// the guide's reboot needs. Bootstrap's own tests set them on a scripted kernel.
	for i := range 8 {
		m.write("sys/bus/pci/devices/"+m.Devices[fmt.Sprintf("gpu%d", i)].String()+"/reset_method", "bus")
	}
	m.Node.Put("usr/share/nvidia/nvswitch/fabricmanager.cfg", "FABRIC_MODE=0\nFM_CMD_BIND_INTERFACE=0.0.0.0\n")
	candidate, _ := m.Node.Run("kata-vfio-audit node --candidate") // of step 1
	if !strings.Contains(candidate, "Kata") || !strings.Contains(candidate, "not installed") {
		t.Errorf("before Kata is installed, the node is a candidate:\n%s", candidate)
	}
	before := map[string]func(){
		"4. Install Kata": func() { m.putAll(kata()) },
		"5. Configure the node": func() {
			for i, file := range []string{"etc/kata-vfio/node.yaml", "etc/kata-vfio/blueprint.yaml"} {
				m.Node.Put(file, yamlOf(t, hgxGuide, "5. Configure the node")[i])
			}
		},
		"10. Audit": func() { m.prepareHGX() },
	}
	for _, heading := range []string{
		"1. Set up the firmware", "2. Enable SR-IOV in the NICs", "3. Configure the NVSwitches", "4. Install Kata", "5. Configure the node",
		"6. Divide the work with NVIDIA's operators", "7. Install the chart", "8. Start a pod with a GPU", "9. Start a pod with a VF", "10. Audit",
	} {
		if prepare := before[heading]; prepare != nil {
			prepare()
		}
		for _, step := range docs.Steps(t, hgxGuide, heading) {
			m.follow(step, fails(step)...)
		}
	}
}

// fails are the commands of a step that end with another code than 0, as the documents say.
func fails(step docs.Step) []string {
	command, _, _ := strings.Cut(strings.TrimSpace(step.Command), ";")
	command = strings.TrimPrefix(command, "sudo ")
	prefix := ""
	if strings.HasPrefix(step.Command, "sudo ") {
		prefix = "sudo "
	}
	switch {
	case strings.HasPrefix(command, "kata-vfio-bootstrap plan"):
		return []string{"3: " + prefix + command}
	case strings.HasPrefix(command, "kata-vfio-bootstrap apply"):
		return []string{"4: " + prefix + command}
	case strings.Contains(command, "| grep"): // in what kubectl prints
		_, grep, _ := strings.Cut(command, "| ")
		return []string{"1: " + grep}
	}
	return nil
}

// prepareHGX does what the plugin and Kata did for the pods of the guide.
func (m *machine) prepareHGX() {
	m.t.Helper()
	nic := m.Devices["nic0"]
	m.write("sys/bus/pci/devices/"+nic.String()+"/sriov_numvfs", "8")
	m.Node.Put(facts.LinksFile, "{}")
	m.ShowPF(nic, "eth1")
	m.prepare("team-a", "gpu0", "gpu1", "gpu2", "gpu3", "gpu4", "gpu5", "gpu6", "gpu7")
	m.ConfigureVFs(m.Give("team-a", "vf-endpoint", m.VFs(nic)[0]))
	for _, dir := range []string{"run/kata-vfio-fabric", "var/lib/kata-vfio-fabric"} { // of Fabric Manager's service
		m.Node.Put(dir+"/file", "")
		m.Mode(dir, 0o700)
	}
	m.settle()
}
