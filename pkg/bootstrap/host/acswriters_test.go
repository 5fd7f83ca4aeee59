package host_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
)

// Guides for NCCL and GPUDirect switch ACS off by such commands at each boot.
func TestCommandsAtTheStartThatUndoIsolationAreNamed(t *testing.T) {
	const unit, script, wants = "etc/systemd/system/acs.service", "usr/local/sbin/acs.sh", "etc/systemd/system/multi-user.target.wants"
	const off = "setpci -v -s $BDF ECAP_ACS+0x6.w=0000"
	enabled := func(more tree) tree {
		more[wants], more[wants+"/acs.service"] = "", ""
		return more
	}
	run := "[Service]\nExecStart=/usr/local/sbin/acs.sh\n"
	for name, c := range map[string]struct {
		files tree
		fatal bool
		want  string
	}{
		"in an enabled unit":             {enabled(tree{unit: "[Service]\nExecStart=/bin/sh -c '" + off + "'\n"}), true, "/" + unit + " line 2 switches isolation"},
		"in a script of an enabled unit": {enabled(tree{unit: run, script: "#!/bin/bash\n# off\n" + off + "\n"}), true, "/" + script + " line 3, which /" + unit + " line 2 runs, switches isolation"},
		"in a unit that is enabled until the next boot": {tree{
			unit: run, script: "#!/bin/bash\n" + off + "\n", "run/systemd/system/multi-user.target.wants": "", "run/systemd/system/multi-user.target.wants/acs.service": "",
		}, true, "/" + script + " line 2, which"},
		"in a unit that a site's own package enables": {tree{
			"usr/local/lib/systemd/system/acs.service": run, script: "#!/bin/bash\n" + off + "\n",
			"usr/local/lib/systemd/system/basic.target.requires": "", "usr/local/lib/systemd/system/basic.target.requires/acs.service": "",
		}, true, "/" + script + " line 2, which /usr/local/lib/systemd/system/acs.service line 2 runs"},
		"in a unit that nothing enables": {tree{unit: run, script: "#!/bin/bash\n" + off + "\n"}, false, "/" + script + " line 2, which"},
		"in a drop-in of an enabled unit": {tree{
			"usr/lib/systemd/system/multi-user.target.wants": "", "usr/lib/systemd/system/multi-user.target.wants/kubelet.service": "",
			"etc/systemd/system/kubelet.service.d": "", "etc/systemd/system/kubelet.service.d/10-acs.conf": "[Service]\nExecStartPost=" + off + "\n",
		}, true, "/etc/systemd/system/kubelet.service.d/10-acs.conf line 2 switches isolation"},
		"in a drop-in of services with a prefix": {tree{
			"etc/systemd/system/multi-user.target.wants": "", "etc/systemd/system/multi-user.target.wants/nvidia-persistenced.service": "",
			"etc/systemd/system/nvidia-.service.d": "", "etc/systemd/system/nvidia-.service.d/a.conf": run, script: "#!/bin/bash\n" + off + "\n",
		}, true, "/" + script + " line 2, which /etc/systemd/system/nvidia-.service.d/a.conf line 2 runs"},
		"in a drop-in of all services": {tree{
			"run/systemd/system/service.d": "", "run/systemd/system/service.d/a.conf": "[Service]\nExecStopPost=" + off + "\n",
		}, true, "/run/systemd/system/service.d/a.conf line 2"},
		"in a drop-in of a unit that nothing enables": {tree{
			"etc/systemd/system/kubelet.service.d": "", "etc/systemd/system/kubelet.service.d/10-acs.conf": "[Service]\nExecStartPost=" + off + "\n",
		}, false, "10-acs.conf line 2"},
		"by udev":                        {tree{"etc/udev/rules.d/9.rules": "ACTION==\"add\", RUN+=\"/usr/bin/setpci -s %k ECAP_ACS+6.w=0\"\n"}, true, "/etc/udev/rules.d/9.rules line 1"},
		"by udev, a site's":              {tree{"usr/local/lib/udev/rules.d/9.rules": "ACTION==\"add\", RUN+=\"/usr/bin/setpci -s %k ECAP_ACS+6.w=0\"\n"}, true, "/usr/local/lib/udev/rules.d/9.rules line 1"},
		"by cron":                        {tree{"etc/cron.d/acs": "@reboot root /usr/local/sbin/acs.sh\n", script: "#!/bin/sh\n" + off}, true, "which /etc/cron.d/acs line 1 runs"},
		"by rc.local":                    {tree{"etc/rc.local": "#!/bin/sh\n" + off + "\n"}, true, "/etc/rc.local line 2"},
		"by the capability's number":     {tree{"etc/rc.local": "setpci -s 1:0.0 ECAP000d+6.w=0000\n"}, true, "line 1 switches"},
		"at a plain offset, for ACS":     {tree{"etc/rc.local": "# disable ACS\nsetpci -s 03:00.0 f2a.w=0000\n"}, true, "line 2 switches"},
		"at a plain offset":              {tree{"etc/rc.local": "setpci -s 03:00.0 68.w=0000\n"}, false, ""},
		"only some switches":             {tree{"etc/rc.local": "setpci -s 3:0.0 ECAP_ACS+6.w=0:4\n"}, true, "line 1 switches"},
		"another switch":                 {tree{"etc/rc.local": "setpci -s 3:0.0 ECAP_ACS+6.w=0:20\n"}, false, ""},
		"ACS switched on":                {tree{"etc/rc.local": "setpci -s 3:0.0 ECAP_ACS+0x6.w=001d\n"}, false, ""},
		"ACS read":                       {tree{"etc/rc.local": "setpci -s 3:0.0 ECAP_ACS+0x6.w\n"}, false, ""},
		"a comment":                      {tree{"etc/rc.local": "# " + off + "\n"}, false, ""},
		"a driver_override by rc.local":  {tree{"etc/rc.local": "echo vfio-pci > /sys/bus/pci/devices/0000:3b:00.0/driver_override\n"}, false, "/etc/rc.local line 1 also sets drivers"},
		"a reset method by tmpfiles":     {tree{"etc/tmpfiles.d/a.conf": "w /sys/bus/pci/devices/0000:3b:00.0/reset_method - - - - bus\n"}, false, ""},
		"a reset method by udev":         {tree{"etc/udev/rules.d/9.rules": "SUBSYSTEM==\"pci\", ATTR{reset_method}=\"bus\"\n"}, false, ""},
		"no resets by tmpfiles":          {tree{"etc/tmpfiles.d/a.conf": "w /sys/bus/pci/devices/0000:3b:00.0/reset_method - - - -\n"}, false, "line 1 switches off how"},
		"no resets by udev":              {tree{"etc/udev/rules.d/9.rules": "SUBSYSTEM==\"pci\", ATTR{reset_method}=\"\"\n"}, false, "line 1 switches off how"},
		"no resets by rc.local":          {tree{"etc/rc.local": "echo > /sys/bus/pci/devices/0000:3b:00.0/reset_method\n"}, false, "line 1 switches off how"},
		"an unbind in a script":          {enabled(tree{unit: run, script: "#!/bin/sh\necho $1 | tee /sys/bus/pci/drivers/nvidia/unbind\n"}), false, "/" + script + " line 2, which"},
		"a driver_override that is read": {tree{"etc/udev/rules.d/9.rules": "ATTR{driver_override}==\"vfio-pci\", TAG+=\"x\"\n"}, false, ""},
		"a package's tool for overrides": {tree{"usr/lib/udev/rules.d/05-driverctl.rules": "RUN+=\"/usr/sbin/driverctl load-override\"\n", "usr/sbin/driverctl": "#!/bin/sh\necho $1 > $d/driver_override\n"}, false, ""},
		"a program that is not a script": {enabled(tree{unit: run, script: "\x7fELF " + off}), false, ""},
	} {
		var said []string
		for _, p := range host.Wanted(c.files, blueprint.Default(), &host.Platform{Systemd: true}).Problems {
			said = append(said, fmt.Sprintf("%t %s; %s", p.Fatal, p.Text, p.Fix))
		}
		all := strings.Join(said, "\n")
		if c.want == "" && all != "" || !strings.Contains(all, c.want) || c.want != "" && !strings.HasPrefix(all, fmt.Sprint(c.fatal)) {
			t.Errorf("%s: %q, want %t %q", name, all, c.fatal, c.want)
		}
	}
}
