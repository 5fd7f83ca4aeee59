package state_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

func at(minute int) time.Time { return time.Date(2026, 11, 22, 12, minute, 0, 0, time.UTC) }

func TestDifferenceKeepsTheTimeWhenItWasFoundFirst(t *testing.T) {
	setting := state.Difference{Part: "modules", Path: "/sys/module/vfio/parameters/x", What: "setting", Why: "want N, is Y"}
	changed := state.Difference{Part: "modules", Path: "/etc/modprobe.d/50-kata-vfio.conf", What: "changed", Since: at(2)}
	first := state.NewRecord(at(5), "pool", "changes needed", []state.Difference{setting, changed}, nil)
	other := setting
	other.Why = "want N, is E"
	second := state.NewRecord(at(9), "pool", "changes needed", []state.Difference{changed, setting, other}, first)
	var got []time.Time
	for _, d := range second.Differences {
		got = append(got, d.Since)
	}
	if diff := cmp.Diff([]time.Time{at(2), at(5), at(9)}, got); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
}

func TestRecordComesBackAsItWasWritten(t *testing.T) {
	want := state.NewRecord(at(5), "pool", "fit", nil, nil)
	text, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := state.ParseRecord(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.At, got.At); diff != "" || got.Outcome != "fit" || got.Blueprint != "pool" || len(got.Differences) != 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestRecordNamesAHundredDifferencesAtMost(t *testing.T) {
	if got := len(state.NewRecord(at(5), "", "changes needed", make([]state.Difference, 101), nil).Differences); got != 100 {
		t.Errorf("%d made", got)
	}
	many := `{"version":1,"at":"2026-11-22T12:00:00Z","outcome":"fit","differences":[` + strings.Repeat("{},", 100) + `{}]}`
	r, err := state.ParseRecord([]byte(many))
	if err != nil || len(r.Differences) != 100 {
		t.Errorf("%v, error %v", r, err)
	}
}

func TestDriftRefusesOtherInput(t *testing.T) {
	const good = `"at":"2026-11-22T12:00:00Z","outcome":"fit"`
	for text, damaged := range map[string]bool{
		"": true, "[]": true, "{}": true, `{"version":1,` + good: true, `{"version":0,` + good + `}`: true,
		`{"version":1,"outcome":"fit"}`: true, `{"version":1,"at":"2026-11-22T12:00:00Z"}`: true, `{"version":2,` + good + `}`: false,
	} {
		_, err := state.ParseRecord([]byte(text))
		if err == nil || errors.Is(err, state.ErrDamaged) != damaged {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

type files map[string]string

func (f files) ReadAtMost(name string, limit int64) ([]byte, error) {
	text := f[name]
	return []byte(text[:min(int64(len(text)), limit)]), nil
}

func TestRecordThatIsTooLargeIsRefused(t *testing.T) {
	text, err := state.NewRecord(at(1), "", "fit", nil, nil).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := state.ReadRecord(files{state.RecordFile: string(text)}); err != nil {
		t.Error(err)
	}
	large := strings.Replace(string(text), `"outcome"`, strings.Repeat(" ", 1<<20)+`"outcome"`, 1)
	if _, err := state.ReadRecord(files{state.RecordFile: large}); !errors.Is(err, state.ErrDamaged) {
		t.Errorf("error %v", err)
	}
}
