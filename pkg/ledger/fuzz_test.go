package ledger_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/mod/sumdb/note"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// seeds are the public key of the captured ledger, and one of its segments.
func seeds(f *testing.F) (key, name, segment string) {
	f.Helper()
	files := readFiles(f, "testdata/ledger")
	name = newest(files)
	return files[ledger.PublicKeyFile], name, files[name]
}

// FuzzVerify: no segment of whatever bytes makes the reader panic, and one that
// is not as it was written is not sound.
func FuzzVerify(f *testing.F) {
	key, name, whole := seeds(f)
	f.Add([]byte(whole))
	v, err := note.NewVerifier(key[:len(key)-1])
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		fsys := fstest.MapFS{ledger.PublicKeyFile: {Data: []byte(key)}, name: {Data: data}}
		if r, err := ledger.Verify(fsys, ledger.Options{}); err != nil || r.OK() {
			t.Fatalf("%q alone is a whole ledger: %v", data, err)
		}
		s := ledger.CheckSegment(name, data, v)
		// A header's Prev is proven by the first event behind it, and by the segment before.
		if len(s.Events) > 0 && !strings.HasPrefix(whole, string(data[:s.Good])) {
			t.Errorf("%q is good", data[:s.Good])
		}
		for e, err := range ledger.Events(fsys) {
			if err == nil && e.Event == nil {
				t.Error("neither event nor error")
			}
		}
	})
}

// FuzzFindCheckpoints: whatever is given for an anchor, what is found is one in
// its form.
func FuzzFindCheckpoints(f *testing.F) {
	_, _, segment := seeds(f)
	f.Add([]byte(segment))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, a := range ledger.FindCheckpoints(data) {
			if c, err := ledger.ParseCheckpoint(a.Signed); err != nil || c != a.Checkpoint {
				t.Errorf("%q: %+v, %v", a.Signed, c, err)
			}
		}
	})
}

// FuzzProof: no proof of whatever content makes its check panic.
func FuzzProof(f *testing.F) {
	f.Add([]byte(`{"v":1,"key":"k","event":"{}","checkpoint":"c","hashes":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ledger.DecodeProof(data)
		if err != nil {
			return
		}
		if _, err := p.Check(""); err == nil && p.Key == "" {
			t.Error("proven by no key")
		}
	})
}
