package kata

import (
	"os"
	"strings"
	"testing"
	"time"
)

// recorded is a pod's start, of Kata 4.1.0 in the lab: its messages that matter and some that don't.
const (
	recorded        = "testdata/start.log"
	recordedSandbox = "4fbd1109e9c19b8681734e895c465194f293b6ac0b3405259205c1afeae6f3f5"
)

func TestPhases(t *testing.T) {
	log, err := os.Open(recorded)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	got, err := Phases(log, recordedSandbox)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(milestones())-1 {
		t.Fatalf("%d phases: %v", len(got), got)
	}
	var sum time.Duration
	for _, p := range got {
		if p.Took <= 0 {
			t.Errorf("%s took %v", p.Name, p.Took)
		}
		sum += p.Took
	}
	if want := 96583697213 * time.Nanosecond; sum != want {
		t.Errorf("the whole start took %v; want %v", sum, want)
	}
}

func TestPhasesNamesWhatTheLogLacks(t *testing.T) {
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	for message, log := range map[string]string{
		"Agent started in the sandbox": strings.ReplaceAll(string(text), "Agent started", "Agent lost"),
		"loaded configuration":         strings.ReplaceAll(string(text), recordedSandbox, strings.Repeat("a", 64)),
	} {
		if _, err := Phases(strings.NewReader(log), recordedSandbox); err == nil || !strings.Contains(err.Error(), message) {
			t.Errorf("without %q: %v", message, err)
		}
	}
}
