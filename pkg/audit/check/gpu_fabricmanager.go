package check

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
)

// fabricManagerChecks are about the configuration of NVIDIA's Fabric Manager where it gives partitions to VMs.
func fabricManagerChecks() []Check {
	return []Check{
		{ID: "GPU-016", Judge: fabricAPIIsRoots},
		{ID: "GPU-017", Judge: fabricSocketIsAPI},
		{ID: "GPU-018", Judge: fabricMakesPartitions},
		{ID: "GPU-019", Judge: fabricStateIsRoots},
		{ID: "GPU-020", Judge: fabricVersionIsDrivers},
	}
}

// apiPort returns the port of Fabric Manager's API.
func apiPort(config facts.Fact) (uint16, error) {
	port, _ := fabricSetting(config, "FM_CMD_PORT_NUMBER")
	// 6666 is the default of FM_CMD_PORT_NUMBER (NVIDIA Fabric Manager User Guide).
	number, err := strconv.ParseUint(cmp.Or(port, "6666"), 10, 16)
	return uint16(number), err
}

// sharedFabric returns Fabric Manager's configuration of a board with partitions, or the answer where there is none.
func sharedFabric(n *facts.Node) (config facts.Fact, none Answer) {
	if b := newFabric(n); len(b.switches) == 0 {
		return config, b.missing()
	}
	config = n.FabricConfig()
	mode, line := fabricSetting(config, "FABRIC_MODE")
	switch {
	case !config.OK():
		return config, unknown("how Fabric Manager is configured (it may run in its own VM or container)", config)
	case mode != "1":
		return config, notApplicable("Fabric Manager makes no partitions for VMs: FABRIC_MODE="+cmp.Or(mode, "0"), line)
	}
	return config, nil
}

// fabricAPIIsRoots fails for an API on TCP, also on a loopback address: every pod with the node's network reaches that.
func fabricAPIIsRoots(n *facts.Node) Answer {
	config, none := sharedFabric(n)
	if none != nil {
		return none
	}
	port, err := apiPort(config)
	if err != nil {
		return unknown("the port that Fabric Manager listens on", config)
	}
	socket, line := fabricSetting(config, "FM_CMD_UNIX_SOCKET_PATH")
	open, sockets := n.Listeners(port)
	switch {
	case socket == "":
		return fail(fmt.Sprintf("Fabric Manager's API is on TCP port %d: every pod with hostNetwork can change partitions", port), line, sockets)
	// Fabric Manager may have been started with another configuration.
	case len(open) > 0:
		return fail(fmt.Sprintf("the configuration has the API at %s, but TCP port %d is open on %s: every pod with hostNetwork reaches it", socket, port, open[0]), line, sockets)
	case !sockets.Known():
		return unknown("whether Fabric Manager listens on a TCP port, too", sockets, line)
	}
	return rootReaches(n, socket, line)
}

// rootReaches passes if a directory of root above the socket is closed to all others. The mode of the socket itself also restricts
// who may connect, but it is set only after the socket exists.
func rootReaches(n *facts.Node, socket string, line facts.Fact) Answer {
	var seen []facts.Fact
	for _, dir := range n.Parents(path.Dir(socket)) {
		stat, fact := n.Stat(dir)
		if !fact.OK() {
			return unknown("who reaches the socket "+socket, fact, line)
		}
		if stat.UID == 0 && stat.ModeBits()&0o077 == 0 {
			return pass("only root reaches "+socket, line, fact)
		}
		seen = append(seen, fact)
	}
	return fail("no directory above the socket "+socket+" is root's alone (mode 0700)", append(seen, line)...)
}

// fabricSocketIsAPI fails if the configured socket of the API is the socket of Fabric Manager's own processes. That socket accepts
// connections, but answers every call with FM_ST_UNINITIALIZED.
func fabricSocketIsAPI(n *facts.Node) Answer {
	config, none := sharedFabric(n)
	if none != nil {
		return none
	}
	api, line := fabricSetting(config, "FM_CMD_UNIX_SOCKET_PATH")
	internal, internalLine := fabricSetting(config, "UNIX_SOCKET_PATH")
	switch {
	case internal != "" && path.Clean(internal) == path.Clean(api):
		return fail("UNIX_SOCKET_PATH and FM_CMD_UNIX_SOCKET_PATH are both "+api, line, internalLine)
	case internal != "" && api == "":
		return fail("UNIX_SOCKET_PATH is "+internal+", which does not have the API, and FM_CMD_UNIX_SOCKET_PATH is empty", internalLine, line)
	}
	return pass("the API is at "+cmp.Or(api, "a TCP port"), line, internalLine)
}

// fabricMakesPartitions fails if bootstrap or the plugin has set up partitions, but Fabric Manager makes none.
func fabricMakesPartitions(n *facts.Node) Answer {
	known, mapped := n.FabricState(), n.FabricMap()
	if known.Fact.Status == facts.Absent && mapped.Fact.Status == facts.Absent {
		return notApplicable("neither bootstrap nor the plugin has set up partitions", known.Fact, mapped.Fact)
	}
	config := n.FabricConfig()
	mode, line := fabricSetting(config, "FABRIC_MODE")
	switch {
	case !config.OK():
		return unknown("how Fabric Manager is configured (it may run in its own VM or container)", config)
	case mode != "1":
		return fail("claims get partitions here, and Fabric Manager makes none: FABRIC_MODE="+cmp.Or(mode, "0"), line)
	}
	return pass("FABRIC_MODE=1", line)
}

// fabricStateIsRoots fails if another user can create the state file before Fabric Manager does. Fabric Manager resumes from this file.
func fabricStateIsRoots(n *facts.Node) Answer {
	config, none := sharedFabric(n)
	if none != nil {
		return none
	}
	file, line := fabricSetting(config, "STATE_FILE_NAME")
	// The default of STATE_FILE_NAME (NVIDIA Fabric Manager User Guide).
	file = cmp.Or(file, "/tmp/fabricmanager.state")
	for _, dir := range n.Parents(path.Dir(file)) {
		stat, fact := n.Stat(dir)
		if !fact.OK() {
			return unknown("who may write to the directory of "+file, fact, line)
		}
		// The sticky bit of /tmp keeps others from replacing the file, but not from creating it first.
		if stat.UID != 0 || stat.ModeBits()&0o002 != 0 || stat.ModeBits()&0o020 != 0 && stat.GID != 0 {
			return fail("users other than root can put Fabric Manager's state file "+file+" there: /"+dir+" has "+fact.Value, line, fact)
		}
	}
	return pass("only root writes to the directory of "+file, line)
}

// runningFabricManager is what Fabric Manager logs when it starts.
var runningFabricManager = regexp.MustCompile(`Fabric Manager version (\d+(?:\.\d+)+) is running`)

func fabricVersionIsDrivers(n *facts.Node) Answer {
	config, none := sharedFabric(n)
	if none != nil {
		return none
	}
	driver := n.Read(fabric.VersionFile)
	name, _ := fabricSetting(config, "LOG_FILE_NAME")
	log := n.ReadTail(cmp.Or(name, "/var/log/fabricmanager.log"))
	starts := runningFabricManager.FindAllStringSubmatch(log.Value, -1)
	log.Value = ""
	switch {
	case driver.Status == facts.Absent:
		return notApplicable("the driver nvidia is not loaded", driver)
	case !driver.OK():
		return unknown("the version of the driver nvidia", driver)
	case len(starts) == 0:
		return say(finding.Manual, "Fabric Manager's log does not show its version: compare it with the driver's, "+driver.Value, []facts.Fact{driver, log})
	}
	// By default, Fabric Manager appends to its log after a restart (LOG_APPEND_TO_LOG).
	last := starts[len(starts)-1]
	log.Value = last[0]
	if last[1] != strings.TrimSpace(driver.Value) {
		return fail(fmt.Sprintf("Fabric Manager is version %s, and the driver nvidia %s", last[1], driver.Value), log, driver)
	}
	return pass("both are "+last[1], log, driver)
}
