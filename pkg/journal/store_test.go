package journal_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

func record(uid string) *journal.Record {
	addr := pci.Address{Bus: 0x3b}
	return &journal.Record{
		Kind: journal.Claim, State: journal.Preparing, BootID: "boot-1",
		Plan: plan.Plan{
			Claim:   plan.Ref{UID: uid, Namespace: "tenant-a", Name: "gpu"},
			Devices: []plan.Device{{Name: "gpu-0000-3b-00-0", Address: addr, Give: []pci.Address{addr}}},
			Functions: []plan.Function{{
				Address: addr, Vendor: 0x10de, Device: 0x2330, Group: 15, Role: plan.RoleDevice,
				Original: plan.Binding{Driver: "nvidia"},
				Target:   plan.Binding{Driver: "vfio-pci", Override: "vfio-pci"},
			}},
			Steps: []plan.Step{{Operation: plan.Unbind, Address: addr, DriverBefore: "nvidia"}},
		},
	}
}

func open(t *testing.T) (*journal.Store, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "journal")
	s, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func TestStoreKeepsRecords(t *testing.T) {
	s, _ := open(t)
	for _, uid := range []string{"b", "a"} {
		if err := s.Save(record(uid)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Load("a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(record("a"), got); diff != "" {
		t.Errorf("Load (-want +got):\n%s", diff)
	}
	next := record("a")
	next.State = journal.Prepared
	if err := s.Save(next); err != nil {
		t.Fatal(err)
	}
	all, errs := s.List()
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if diff := cmp.Diff([]*journal.Record{next, record("b")}, all); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	for range 2 { // a second removal is not an error
		if err := s.Delete("a"); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := s.Load("a"); got != nil || err != nil {
		t.Errorf("Load after Delete = %v, %v; want neither", got, err)
	}
}

// TestReaderSeesReplacedRecord checks that the cache never outlives a file:
// another instance replaces records under our eyes.
func TestReaderSeesReplacedRecord(t *testing.T) {
	s, dir := open(t)
	other, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	states := []journal.State{journal.Preparing, journal.Prepared, journal.Releasing}
	for _, state := range states {
		r := record("a")
		r.State = state
		if err := other.Save(r); err != nil {
			t.Fatal(err)
		}
		got, err := s.Load("a")
		if err != nil || got.State != state {
			t.Fatalf("Load = %+v, %v; want state %s", got, err, state)
		}
	}
}

func TestUnusableRecords(t *testing.T) {
	good, err := journal.Encode(record("a"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		data []byte
		want error
		says string
	}{
		"empty":           {nil, journal.ErrDamaged, "backup"},
		"no JSON":         {[]byte("gpu\n"), journal.ErrDamaged, "backup"},
		"cut off":         {good[:len(good)/2], journal.ErrDamaged, "backup"},
		"changed":         {bytes.Replace(good, []byte("nvidia"), []byte("nouveau"), 1), journal.ErrDamaged, "checksum"},
		"without version": {bytes.Replace(good, []byte(`"version": 1`), []byte(`"version": 0`), 1), journal.ErrDamaged, "version 0"},
		"newer":           {bytes.Replace(good, []byte(`"version": 1`), []byte(`"version": 2`), 1), journal.ErrNewer, "version that wrote it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s, dir := open(t)
			path := filepath.Join(dir, "a.json")
			if err := os.WriteFile(path, tt.data, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := s.Load("a")
			var file *journal.FileError
			if !errors.Is(err, tt.want) || !errors.As(err, &file) || file.Path != path {
				t.Fatalf("Load = %v; want a FileError on %s that is %v", err, path, tt.want)
			}
			if !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Load = %v; want %q in it", err, tt.says)
			}
			if _, errs := s.List(); len(errs) != 1 || !errors.Is(errs[0], tt.want) {
				t.Errorf("List errors = %v; want one that is %v", errs, tt.want)
			}
			if data, _ := os.ReadFile(path); !bytes.Equal(data, tt.data) {
				t.Error("the unusable file was changed")
			}
		})
	}
}

func TestRecordUnderAnotherName(t *testing.T) {
	s, dir := open(t)
	data, err := journal.Encode(record("a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "b.json"), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load("b"); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("Load = %v; want ErrDamaged", err)
	}
}

func TestReformattedRecordIsWhole(t *testing.T) {
	data, err := journal.Encode(record("a"))
	if err != nil {
		t.Fatal(err)
	}
	reformatted := bytes.ReplaceAll(data, []byte("\n  "), []byte("\n\t\t"))
	if bytes.Equal(data, reformatted) {
		t.Fatal("the test changed nothing")
	}
	got, err := journal.Decode(reformatted)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(record("a"), got); diff != "" {
		t.Errorf("Decode (-want +got):\n%s", diff)
	}
}

func TestIDsStayInTheDirectory(t *testing.T) {
	s, _ := open(t)
	for _, id := range []string{"", ".", "..", "../a", "a/b", "a\x00", ".hidden", strings.Repeat("a", 300)} {
		if err := s.Save(record(id)); err == nil {
			t.Errorf("Save(%q) = nil; want an error", id)
		}
		if _, err := s.Load(id); err == nil {
			t.Errorf("Load(%q) = nil; want an error", id)
		}
		if err := s.Delete(id); err == nil {
			t.Errorf("Delete(%q) = nil; want an error", id)
		}
	}
}

func TestDeleteRemovesLeftovers(t *testing.T) {
	s, dir := open(t)
	for _, uid := range []string{"a", "ab"} {
		if err := s.Save(record(uid)); err != nil {
			t.Fatal(err)
		}
	}
	leftover := filepath.Join(dir, ".a.json123456")
	if err := os.WriteFile(leftover, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if records, errs := s.List(); len(records) != 2 || len(errs) > 0 {
		t.Errorf("List minds the leftover: %v, %v", records, errs)
	}
	if ids, err := s.Leftovers(); err != nil || !slices.Equal(ids, []string{"a"}) {
		t.Errorf("Leftovers = %v, %v; want a", ids, err)
	}
	if err := s.Delete("a"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "ab.json" {
		t.Errorf("after Delete: %v, %v; want ab.json alone", entries, err)
	}
}

func TestReadOnlyStoreMakesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	records, errs := journal.OpenReadOnly(dir).List()
	if len(records) != 0 || len(errs) != 0 {
		t.Errorf("List = %v, %v; want neither", records, errs)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Stat = %v; want the directory to be missing still", err)
	}
}

func FuzzDecode(f *testing.F) {
	good, err := journal.Encode(record("a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"version":1,"sha256":"","record":{}}`))
	f.Add([]byte(`{"version":3}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := journal.Decode(data)
		if err != nil {
			if !errors.Is(err, journal.ErrDamaged) && !errors.Is(err, journal.ErrNewer) {
				t.Fatalf("Decode = %v; want ErrDamaged or ErrNewer", err)
			}
			return
		}
		again, err := journal.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := journal.Decode(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(r, back); diff != "" {
			t.Errorf("a record changes on its way (-before +after):\n%s", diff)
		}
	})
}

// settle makes the records in a directory old enough to be cached.
func settle(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-time.Minute)
	for _, name := range names {
		if err := os.Chtimes(name, past, past); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRecordWithTheFormerOnesInode: a file system may give a new file the number of a removed one, and the clock of its
// times may not have moved on.
func TestRecordWithTheFormerOnesInode(t *testing.T) {
	s, dir := open(t)
	other := journal.OpenReadOnly(dir)
	first, second := record("a"), record("a")
	first.Reason, second.Reason = "1", "2"
	if err := s.Save(first); err != nil {
		t.Fatal(err)
	}
	if r, err := other.Load("a"); err != nil || r.Reason != "1" {
		t.Fatalf("Load = %v, %v", r, err)
	}
	path := filepath.Join(dir, "a.json")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := journal.Encode(second)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path, data, 0o600), os.Chtimes(path, before.ModTime(), before.ModTime())); err != nil {
		t.Fatal(err)
	}
	if r, err := other.Load("a"); err != nil || r.Reason != "2" {
		t.Errorf("Load = %v, %v; want the record that is there", r, err)
	}
}

// TestRecordIsWholeWhileItGrows: the audit and the next plugin of a rolling update read while this one writes.
func TestRecordIsWholeWhileItGrows(t *testing.T) {
	s, dir := open(t)
	small, large := record("a"), record("a")
	large.Reason = strings.Repeat("x", 4000)
	if err := s.Save(small); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		var err error
		for range 500 {
			err = errors.Join(err, s.Replace(large), s.Replace(small))
		}
		written <- err
	}()
	reader := journal.OpenReadOnly(dir)
	for {
		select {
		case err := <-written:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
		if _, err := reader.Load("a"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMakeDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "journal")
	for range 2 {
		if err := journal.MakeDir(dir + "/"); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v; want a directory of root's alone", info, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, in := range []string{file, filepath.Join(file, "below")} {
		if err := journal.MakeDir(in); err == nil {
			t.Errorf("%s is made, although %s is a file", in, file)
		}
	}
}

// TestStoreForgetsDeadClaims: claims come and go for as long as the plugin runs.
func TestStoreForgetsDeadClaims(t *testing.T) {
	s, dir := open(t)
	other := journal.OpenReadOnly(dir) // the metrics' view
	for _, uid := range []string{"a", "b", "c"} {
		if err := s.Save(record(uid)); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, dir)
	for _, store := range []*journal.Store{s, other} {
		if all, errs := store.List(); len(all) != 3 || len(errs) > 0 {
			t.Fatalf("List = %v, %v", all, errs)
		}
	}
	for _, uid := range []string{"a", "b"} {
		if err := s.Delete(uid); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Cached(); n != 1 {
		t.Errorf("%d files are kept in memory after Delete, want that of the claim that lives", n)
	}
	if r, err := other.Load("a"); r != nil || err != nil {
		t.Errorf("Load = %v, %v; want neither", r, err)
	}
	if _, errs := other.List(); len(errs) > 0 || other.Cached() != 1 {
		t.Errorf("another process keeps %d files in memory, %v; want that of the claim that lives", other.Cached(), errs)
	}
}
