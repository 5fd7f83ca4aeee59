package kata

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Phase is one of a pod's start in Kata, by the Go runtime's own log: it ends with a message of the runtime's and begins where
// the phase before it ended.
type Phase struct {
	// Name is a word: get, launch, qemu, agent, sandbox, container; after WithFirstBreath also firmware.
	Name string
	// Began is its begin by the node's clock.
	Began time.Time
	Took  time.Duration
}

// milestone is the end of a phase: the first message of a sandbox that begins with a text.
type milestone struct{ phase, message string }

// milestones are in the order in which a pod with one container passes them. The phase that the first ends is not Kata's.
func milestones() []milestone {
	return []milestone{
		{"", "loaded configuration"},
		{"get", "cold-plug device:"},              // reads its configuration, asks for the pod's devices, resolves them
		{"launch", "launching "},                  // binds the network, starts virtiofsd, builds QEMU's command line
		{"qemu", "VM started"},                    // QEMU is up and has the device
		{"agent", "Agent started in the sandbox"}, // firmware, kernel, agent
		{"sandbox", "Sandbox is started"},         // the sandbox's own container
		{"container", "Container is started"},     // NRI's check, the image, the container
	}
}

// entry is a line of the runtime's log as it reaches syslog: logrus' text.
var entry = regexp.MustCompile(`time="([^"]+)" level=\w+ msg="((?:[^"\\]|\\.)*)".* sandbox=([0-9a-f]{64})`)

// Phases returns how long the phases of a sandbox's start took, those of its first container included, according to the
// messages that syslog took. The error names the message that the log lacks. A VM that took no device lacks one.
func Phases(log io.Reader, sandbox string) ([]Phase, error) {
	all := milestones()
	var phases []Phase
	var last time.Time
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() && len(phases) < len(all) {
		found := entry.FindStringSubmatch(lines.Text())
		next := all[len(phases)]
		if found == nil || found[3] != sandbox || !strings.HasPrefix(found[2], next.message) {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, found[1])
		if err != nil {
			return nil, fmt.Errorf("read the log of Kata's runtime: %w", err)
		}
		phases, last = append(phases, Phase{next.phase, last, at.Sub(last)}), at
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the log of Kata's runtime: %w", err)
	}
	if len(phases) < len(all) {
		return nil, fmt.Errorf("the log of Kata's runtime has no %q of sandbox %s", all[len(phases)].message, sandbox)
	}
	return phases[1:], nil
}

// WithFirstBreath splits the phase agent where the guest's kernel began, by the node's clock: firmware is before that. The error says that the
// kernel began outside of the phase.
func WithFirstBreath(phases []Phase, began time.Time) ([]Phase, error) {
	i := slices.IndexFunc(phases, func(p Phase) bool { return p.Name == "agent" })
	if i < 0 {
		return nil, errors.New("split the phases of a start: there is no phase agent")
	}
	agent := phases[i]
	firmware := began.Sub(agent.Began)
	if firmware < 0 || firmware > agent.Took {
		return nil, fmt.Errorf("split the phases of a start: the guest's kernel began %v after QEMU, and its agent answered after %v", firmware, agent.Took)
	}
	return slices.Concat(phases[:i], []Phase{{"firmware", agent.Began, firmware}, {"agent", began, agent.Took - firmware}}, phases[i+1:]), nil
}
