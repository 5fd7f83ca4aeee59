package frames

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFrameOnTheWire holds a frame against IEEE 802.1Q's bytes, and reads it back, padded as it arrives.
func TestFrameOnTheWire(t *testing.T) {
	for want, f := range map[string]Frame{
		"ffffffffffff" + "020000000001" + "88b5" + "02" + "6869":                           {Source: "02:00:00:00:00:01", Text: "hi"},
		"ffffffffffff" + "020000000001" + "81000064" + "88b5" + "02" + "6869":              {Source: "02:00:00:00:00:01", VLANs: []int{100}, Text: "hi"},
		"ffffffffffff" + "020000000001" + "81000064" + "810000c8" + "88b5" + "02" + "6869": {Source: "02:00:00:00:00:01", VLANs: []int{100, 200}, Text: "hi"},
	} {
		data, err := f.marshal()
		if got := hex.EncodeToString(data); err != nil || got != want {
			t.Errorf("%+v is %s, %v; want %s", f, got, err, want)
		}
		back, ok := unmarshal(append(data, make([]byte, 40)...))
		if diff := cmp.Diff(f, back); !ok || diff != "" {
			t.Errorf("read back: %t (-want +got):\n%s", ok, diff)
		}
	}
}

// TestOthersFramesAreNone: whatever a segment carries is told from the lab's own.
func TestOthersFramesAreNone(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":         "",
		"no EtherType":    "ffffffffffff020000000001",
		"IPv4":            "ffffffffffff0200000000010800450000",
		"cut off":         "ffffffffffff02000000000188b505" + "6869",
		"cut off in tags": "ffffffffffff0200000000018100006481",
	} {
		data, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := unmarshal(data); ok {
			t.Errorf("%s is taken for %+v", name, f)
		}
	}
}
