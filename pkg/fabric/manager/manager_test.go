package manager_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/manager"
)

// script writes a program of the test.
func script(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

// code returns Fabric Manager's code, or 0 if the error is another.
func code(err error) fabric.Code {
	if e, ok := errors.AsType[*fabric.CodeError](err); ok {
		return e.Code
	}
	return 0
}

// TestHelperAnswers believes the helper only where exit code and answer agree.
func TestHelperAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, program string
		want          fabric.Code
		error         string
	}{
		{"success", `echo '{"code":0}'`, 0, ""},
		{"a code", `echo '{"code":-7,"function":"fmActivateFabricPartition"}'; exit 1`, fabric.InUse, "Fabric Manager answers activate with FM_ST_IN_USE"},
		{"a code that nobody knows", `echo '{"code":-17}'; exit 1`, -17, "-17"},
		{"a code with success", `echo '{"code":-7}'`, 0, "exit code 0 of kata-vfio-fabric does not fit its answer"},
		{"success with a code", `echo '{"code":0}'; exit 1`, 0, "exit code 1 of kata-vfio-fabric does not fit its answer"},
		{"a fault", `echo '{"code":0,"error":"load the library: none"}'; exit 3`, 0, "ask Fabric Manager to activate: load the library: none"},
		{"a fault with success", `echo '{"code":0,"error":"x"}'`, 0, "ask Fabric Manager to activate: x"},
		{"nothing", `echo 'not found' >&2; exit 127`, 0, `exit code 127 of kata-vfio-fabric, and no answer: unexpected end of JSON input (it printed "not found")`},
		{"two answers", `echo '{"code":0}{"code":0}'`, 0, "no answer"},
		{"a signal", `kill -SEGV $$`, 0, "segmentation fault"},
		{"an endless answer", `while :; do echo '{"code":0,"code":0,"code":0,"code":0,"code":0,"code":0,"code":0,"code":0}'; done`, 0, "has more than 1048576 bytes"},
	} {
		m := &manager.Helper{Program: script(t, tt.program), Address: "unix:/run/fm.sock"}
		err := m.Activate(t.Context(), 3)
		if code(err) != tt.want || (err == nil) != (tt.error == "") || err != nil && !strings.Contains(err.Error(), tt.error) {
			t.Errorf("%s: got %v, want code %d and %q", tt.name, err, tt.want, tt.error)
		}
	}
}

// TestHelperIsAsked shows what the helper is told, and that it has no environment.
func TestHelperIsAsked(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LD_PRELOAD_OF_TEST", "x")
	m := &manager.Helper{
		Program: script(t, `cat >"$1/request"; env >"$1/env"; pwd >>"$1/env"; echo '{"code":0}'`), Args: []string{dir},
		Address: "unix:/run/fm.sock", Env: []string{"PATH=/usr/bin:/bin"},
	}
	for _, tt := range []struct {
		call func() error
		want string
	}{
		{func() error { return m.Activate(t.Context(), 0) }, `{"call":"activate","address":"unix:/run/fm.sock","timeoutMs":3000,"id":0}`},
		{func() error { return m.Deactivate(t.Context(), 14) }, `{"call":"deactivate","address":"unix:/run/fm.sock","timeoutMs":3000,"id":14}`},
		{func() error { return m.SetActivated(t.Context(), []int{}) }, `{"call":"setActivated","address":"unix:/run/fm.sock","timeoutMs":3000,"ids":[]}`},
		{func() error { return m.SetActivated(t.Context(), nil) }, `{"call":"setActivated","address":"unix:/run/fm.sock","timeoutMs":3000}`},
		{func() error { return m.SetActivated(t.Context(), []int{3, 4}) }, `{"call":"setActivated","address":"unix:/run/fm.sock","timeoutMs":3000,"ids":[3,4]}`},
	} {
		if err := tt.call(); err != nil {
			t.Fatal(err)
		}
		if got := read(t, dir, "request"); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
	if got := read(t, dir, "env"); strings.Contains(got, "LD_PRELOAD_OF_TEST") || !strings.HasSuffix(got, "\n/\n") {
		t.Errorf("the helper's environment is %q, want none of the plugin's, and the directory /", got)
	}
	if _, err := m.Partitions(t.Context()); err == nil || !strings.Contains(err.Error(), "no list of partitions") {
		t.Errorf("an answer without a list: got %v", err)
	}
	if err := m.SetActivated(t.Context(), []int{3, 3}); err == nil || !strings.Contains(err.Error(), "partition 3 is in the list twice") {
		t.Errorf("got %v, want a refusal", err)
	}
}

// TestProgramsHaveNoEnvironment unless one is given: a variable of the plugin's could have the loader take another library.
func TestProgramsHaveNoEnvironment(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("LD_PRELOAD_OF_TEST", "x")
	for name, m := range map[string]fabric.Manager{
		"helper": &manager.Helper{Program: script(t, `/usr/bin/env >`+dir+`/env; echo '{"code":0}'`), Address: "unix:/s"},
		"fmpm":   &manager.FMPM{Program: script(t, `/usr/bin/env >`+dir+`/env`), Address: "tcp:127.0.0.1:6666"},
	} {
		if err := m.Activate(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if got := read(t, dir, "env"); got == "" || strings.Contains(got, "LD_PRELOAD_OF_TEST") {
			t.Errorf("the environment of %s is %q, want none of the plugin's", name, got)
		}
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestListsAreChecked refuses a list that can't be right.
func TestListsAreChecked(t *testing.T) {
	m := &manager.Helper{Address: "unix:/s", Program: script(t, `echo '{"code":0,"partitions":[{"id":1,"active":false,"gpus":[{"module":1}]},{"id":1,"active":false,"gpus":[{"module":2}]}]}'`)}
	_, err := m.Partitions(t.Context())
	if _, ok := errors.AsType[*fabric.ListError](err); !ok {
		t.Errorf("got %v, want a ListError", err)
	}
}

// TestHangingProgramsEnd kills a program that takes too long, and its children.
func TestHangingProgramsEnd(t *testing.T) {
	dir := t.TempDir()
	// The child keeps the output open.
	hang := `sleep 600 & echo $! >` + dir + `/child; echo -n '{' ; wait`
	for name, m := range map[string]fabric.Manager{
		"helper": &manager.Helper{Program: script(t, hang), Address: "unix:/s", Env: []string{"PATH=/usr/bin:/bin"}},
		"fmpm":   &manager.FMPM{Program: script(t, "PATH=/usr/bin:/bin; "+hang), Address: "tcp:127.0.0.1:6666"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		start := time.Now()
		err := m.Deactivate(ctx, 3)
		cancel()
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || code(err) != 0 || took > 5*time.Second {
			t.Errorf("%s: got %v after %s, want the deadline", name, err, took)
		}
		var child int
		if _, err := fmt.Sscan(read(t, dir, "child"), &child); err != nil {
			t.Fatal(err)
		}
		if !gone(child) {
			t.Errorf("%s: child %d still runs", name, child)
		}
	}
}

// gone waits for the end of a process that was killed.
func gone(pid int) bool {
	for range 200 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || strings.Contains(string(stat), ") Z ") {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// TestLongWordsAreCut: what the helper says is stored, and shown on terminals.
func TestLongWordsAreCut(t *testing.T) {
	m := &manager.Helper{Address: "unix:/s", Program: script(t, `printf '{"code":0,"error":"\\u001b[2J'; head -c 900000 /dev/zero | tr '\0' x; printf '"}'; exit 3`)}
	_, err := m.Partitions(t.Context())
	if err == nil || len(err.Error()) > 2000 || !strings.Contains(err.Error(), "list:  [2Jxxx") {
		t.Errorf("got %.100v, want a short text without control characters", err)
	}
}

// TestMissingProgram names the program, and has no code of Fabric Manager.
func TestMissingProgram(t *testing.T) {
	for _, m := range []fabric.Manager{
		&manager.Helper{Program: "/none/kata-vfio-fabric", Address: "unix:/s"},
		&manager.FMPM{Program: "/none/fmpm", Address: "tcp:127.0.0.1:6666"},
	} {
		_, err := m.Partitions(t.Context())
		if code(err) != 0 || !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "ask Fabric Manager to list: run /none/") {
			t.Errorf("got %v, want that the program does not exist", err)
		}
	}
}

// TestFMPMLists reads what fmpm prints.
func TestFMPMLists(t *testing.T) {
	path, err := filepath.Abs("testdata/h100.json")
	if err != nil {
		t.Fatal(err)
	}
	m := &manager.FMPM{Program: script(t, `[ "$*" = -l ] && cat `+path), Address: "tcp:127.0.0.1:6666"}
	list, err := m.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gpu := func(module int) fabric.GPU {
		return fabric.GPU{Module: module, Address: "00000000:00:00.0", Links: 18, MaxLinks: 18, LineRate: 25781}
	}
	want := fabric.List{
		{ID: 0, GPUs: []fabric.GPU{gpu(1), gpu(2), gpu(3), gpu(4)}},
		{ID: 3, Active: true, GPUs: []fabric.GPU{gpu(1), gpu(3)}},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestFMPMListsThatCannotBe refuses lists of which something is missing: no ID is not ID 0.
func TestFMPMListsThatCannotBe(t *testing.T) {
	for list, want := range map[string]string{
		`{}`:                   "numPartitions is missing, or not the number",
		`{"numPartitions": 1}`: "numPartitions is missing, or not the number",
		`Failed`:               "invalid character",
		`{"numPartitions": 1, "partitionInfo": [{"isActive": 0, "numGpus": 1, "gpuInfo": [{"physicalId": 1}]}]}`:                                                       "no partitionId",
		`{"numPartitions": 1, "partitionInfo": [{"partitionId": 0, "numGpus": 1, "gpuInfo": [{"physicalId": 1}]}]}`:                                                    "no isActive",
		`{"numPartitions": 1, "partitionInfo": [{"partitionId": 0, "isActive": 0, "numGpus": 2, "gpuInfo": [{"physicalId": 1}]}]}`:                                     "not numGpus GPUs",
		`{"numPartitions": 1, "partitionInfo": [{"partitionId": 0, "isActive": 0, "numGpus": 1, "gpuInfo": [{}]}]}`:                                                    "no physicalId",
		`{"numPartitions": 1, "partitionInfo": [{"partitionId": 0, "isActive": 0, "numGpus": 2, "gpuInfo": [{"physicalId": 1}, {"physicalId": 1}]}]}`:                  "module 1 twice",
		`{"numPartitions": 1, "partitionInfo": [{"partitionId": 4294967296000000000000, "isActive": 0, "numGpus": 1, "gpuInfo": [{"physicalId": 1}]}]}`:                "cannot unmarshal",
		`{"numPartitions": 1, "partitionInfo": [{"partitionId": 0, "isActive": 0, "numGpus": 1, "gpuInfo": [{"physicalId": 1}]}]} Failed to connect to Fabric Manager`: "invalid character",
	} {
		m := &manager.FMPM{Program: script(t, "cat <<'END'\n"+list+"\nEND\n"), Address: "tcp:127.0.0.1:6666"}
		if _, err := m.Partitions(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", list, err, want)
		}
	}
}

// TestFMPMCodes reads the code from the exit status, and compares it with what is printed.
func TestFMPMCodes(t *testing.T) {
	for _, tt := range []struct {
		name, program string
		want          fabric.Code
		error         string
	}{
		{"success", ``, 0, ""},
		{"in use", `echo 'Failed to activate partition. fmReturn: -7'; exit 249`, fabric.InUse, "FM_ST_IN_USE"},
		{"not reachable", `echo 'Failed to connect to Fabric Manager instance.'; exit 247`, fabric.ConnectionNotValid, "FM_ST_CONNECTION_NOT_VALID"},
		{"links", `echo 'Failed to activate partition. fmReturn: -10'; exit 246`, fabric.NVLinkError, "FM_ST_NVLINK_ERROR"},
		{"a code that is not the printed one", `echo 'Failed to activate partition. fmReturn: -7'; exit 255`, 0, "exit code 255 of fmpm stands for -1 (it printed"},
		{"no code", `echo 'Try -h'; exit 1`, 0, "exit code 1 of fmpm is none of Fabric Manager"},
		{"no program", `exit 127`, 0, "exit code 127 of fmpm is none of Fabric Manager"},
		{"success that says something", `echo 'Invalid Partition ID.'`, 0, `it is unknown whether there was any (it printed "Invalid Partition ID.")`},
	} {
		m := &manager.FMPM{Program: script(t, tt.program), Address: "tcp:127.0.0.1:6666"}
		err := m.Activate(t.Context(), 3)
		if code(err) != tt.want || (err == nil) != (tt.error == "") || err != nil && !strings.Contains(err.Error(), tt.error) {
			t.Errorf("%s: got %v, want code %d and %q", tt.name, err, tt.want, tt.error)
		}
	}
}

// TestFMPMIsAsked shows fmpm's arguments, and what never reaches it.
func TestFMPMIsAsked(t *testing.T) {
	dir := t.TempDir()
	m := &manager.FMPM{Program: script(t, `for a; do echo "[$a]"; done >`+dir+`/args`), Address: "tcp:127.0.0.1:6666"}
	other := &manager.FMPM{Program: m.Program, Address: "tcp:10.0.0.1:6666"}
	for _, tt := range []struct {
		call func() error
		want string
	}{
		{func() error { return m.Activate(t.Context(), 0) }, "[-a]\n[0]\n"},
		{func() error { return m.Deactivate(t.Context(), 14) }, "[-d]\n[14]\n"},
		{func() error { return m.SetActivated(t.Context(), nil) }, "[--set-activated-list]\n[]\n"},
		{func() error { return m.SetActivated(t.Context(), []int{3, 4}) }, "[--set-activated-list]\n[3,4]\n"},
		{func() error { return other.Activate(t.Context(), 7) }, "[--hostname]\n[10.0.0.1]\n[-a]\n[7]\n"},
	} {
		if err := tt.call(); err != nil {
			t.Fatal(err)
		}
		if got := read(t, dir, "args"); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
	m.Program = "/never/started"
	socket := &manager.FMPM{Program: m.Program, Address: "unix:/run/fm.sock"}
	for want, err := range map[string]error{
		"partition 3 is in the list twice":   m.SetActivated(t.Context(), []int{3, 4, 3}),
		"partition -1 is not one of":         m.Activate(t.Context(), -1),
		"fmpm connects by TCP alone":         socket.Activate(t.Context(), 1),
		"65 partitions are more than the 64": m.SetActivated(t.Context(), make([]int, 65)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
