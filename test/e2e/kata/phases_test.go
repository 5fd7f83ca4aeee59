package kata

import (
	"os"
	"slices"
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

func TestFirstBreathSplitsAgentPhase(t *testing.T) {
	begin := time.Date(2026, 11, 23, 16, 51, 0, 0, time.UTC)
	after := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	phases := []Phase{{"qemu", begin, 10 * time.Second}, {"agent", after(10), 40 * time.Second}, {"sandbox", after(50), 5 * time.Second}}
	got, err := WithFirstBreath(phases, after(13))
	if err != nil {
		t.Fatal(err)
	}
	want := []Phase{
		phases[0], {"firmware", after(10), 3 * time.Second}, {"agent", after(13), 37 * time.Second}, phases[2],
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
	for _, began := range []time.Time{after(9), after(51)} {
		if _, err := WithFirstBreath(phases, began); err == nil {
			t.Errorf("no error for a kernel that began at %v", began)
		}
	}
	if _, err := WithFirstBreath(phases[:1], after(13)); err == nil {
		t.Error("no error without the phase")
	}
}
