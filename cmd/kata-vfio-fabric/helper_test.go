package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/manager"
	"github.com/kata-vfio/kata-vfio/test/nvfm"
)

// TestHelper runs the helper against the stub of NVIDIA's library, which compares sizes and versions as that does.
func TestHelper(t *testing.T) {
	built := nvfm.Build(t)
	for _, tt := range []struct {
		name string
		run  func(*testing.T, nvfm.Built)
	}{
		{"a partition's life", life},
		{"addresses", addresses},
		{"codes", codes},
		{"answers that can't be", impossible},
		{"a board that fills addresses in", filled},
		{"reports", reports},
		{"a restart of Fabric Manager", restart},
		{"a library that hangs", hangs},
		{"requests that are wrong", wrongRequests},
		{"a library that does not load", noLibrary},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.run(t, built) })
	}
}

func client(built nvfm.Built, state string) *manager.Helper {
	return &manager.Helper{
		Program: built.Helper, Args: []string{"-library", built.Library}, Address: "unix:/run/fm/api.sock",
		Env: []string{nvfm.Variable + "=" + state},
	}
}

func life(t *testing.T, built nvfm.Built) {
	state := nvfm.Write(t, nvfm.H100)
	m := client(built, state)
	if err := m.Activate(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	list, err := m.Partitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) != 15 {
		t.Errorf("got %d partitions, want 15", len(list))
	}
	gpu := func(module int) fabric.GPU {
		return fabric.GPU{Module: module, Links: 18, MaxLinks: 18, LineRate: 25781}
	}
	want := fabric.List{{ID: 3, Active: true, GPUs: []fabric.GPU{gpu(1), gpu(3)}}}
	if diff := cmp.Diff(want, list.Active()); diff != "" {
		t.Errorf("active partitions (-want +got):\n%s", diff)
	}
	if got := codeOf(m.Activate(t.Context(), 0)); got != fabric.InUse {
		t.Errorf("activate a partition whose GPUs are elsewhere: got %s, want %s", got, fabric.InUse)
	}
	if err := m.Deactivate(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	if got := codeOf(m.Deactivate(t.Context(), 3)); got != fabric.Uninitialized {
		t.Errorf("deactivate an inactive partition: got %s, want %s", got, fabric.Uninitialized)
	}
	if log := nvfm.Calls(t, state); !strings.HasSuffix(log, "deactivate 3\ndisconnect\nshutdown\n") {
		t.Errorf("the last session does not end as it must:\n%s", log)
	}
}

// codeOf returns Fabric Manager's code, or 0 if the error is another.
func codeOf(err error) fabric.Code {
	if e, ok := errors.AsType[*fabric.CodeError](err); ok {
		return e.Code
	}
	return 0
}

// addresses have the kind that the library takes, in the version that it takes.
func addresses(t *testing.T, built nvfm.Built) {
	for _, tt := range []struct {
		name, address, state string
		want                 []string // what fmConnect got: version, address, timeout, whether it is a socket, and in version 2 the kind
	}{
		{"socket", "unix:/run/fm/api.sock", "connect 1\n", []string{"0100010c /run/fm/api.sock 3000 1"}},
		{"TCP", "tcp:127.0.0.1:6666", "connect 1\n", []string{"0100010c 127.0.0.1:6666 3000 0"}},
		{"socket, newer library", "unix:/run/fm/api.sock", "connect 2\n", []string{"0100010c /run/fm/api.sock 3000 1", "02000110 /run/fm/api.sock 3000 1 2"}},
		{"TCP, newer library", "tcp:127.0.0.1:6666", "connect 2\n", []string{"0100010c 127.0.0.1:6666 3000 0", "02000110 127.0.0.1:6666 3000 0 1"}},
		{"vsock", "vsock:3:6666", "connect 2\n", []string{"02000110 3:6666 3000 0 3"}},
	} {
		state := nvfm.Write(t, tt.state)
		m := client(built, state)
		m.Address = tt.address
		if _, err := m.Partitions(t.Context()); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		var got []string
		for line := range strings.Lines(nvfm.Calls(t, state)) {
			if rest, ok := strings.CutPrefix(line, "connect "); ok {
				got = append(got, strings.TrimSpace(rest))
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

// codes of each function reach the caller unchanged.
func codes(t *testing.T, built nvfm.Built) {
	for _, function := range []string{"init", "connect", "activate"} {
		for code := fabric.NVLinkError; code < 0; code++ {
			state := nvfm.Write(t, nvfm.H100+"fault "+function+" "+itoa(int(code))+"\n")
			err := client(built, state).Activate(t.Context(), 7)
			if got := codeOf(err); got != code {
				t.Errorf("%s returns %d: got %v", function, code, err)
			}
		}
	}
}

func itoa(n int) string {
	text, _ := json.Marshal(n) //nolint:errchkjson // a number
	return string(text)
}

// impossible counts are refused before they are used.
func impossible(t *testing.T, built nvfm.Built) {
	for _, tt := range []struct {
		state, call string
		want        string
	}{
		{"listed 65\n", "list", "fmGetSupportedFabricPartitions listed 65 partitions, which is more"},
		{"listed 4294967295\n", "list", "fmGetSupportedFabricPartitions listed 4294967295 partitions, which is more"},
		{"gpusListed 17\n", "list", "fmGetSupportedFabricPartitions listed partition 0 of 17 GPUs, which is more"},
		{"gpusListed 17\n", "failed", "fmGetNvlinkFailedDevices listed 17 GPUs and 1 NVSwitches, which is more"},
		{"listed 65\n", "failed", "fmGetNvlinkFailedDevices listed a device with 65 failed ports, which is more"},
		{"listed 65\n", "unsupported", "fmGetUnsupportedFabricPartitions listed 65 partitions, which is more"},
		{"gpusListed 17\n", "unsupported", "fmGetUnsupportedFabricPartitions listed partition 14 of 17 GPUs, which is more"},
	} {
		answer, exit := ask(t, built, nvfm.H100+tt.state, `{"call":"`+tt.call+`","address":"unix:/s","timeoutMs":9}`)
		if exit != manager.ExitAnswer || !strings.HasPrefix(answer.Error, tt.want) || answer.Partitions != nil {
			t.Errorf("%s with %q: got exit code %d and %+v, want %d and %q", tt.call, tt.state, exit, answer, manager.ExitAnswer, tt.want)
		}
	}
}

// ask runs the helper by hand.
func ask(t *testing.T, built nvfm.Built, state, request string) (manager.Answer, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), built.Helper, "-library", built.Library)
	cmd.Env = []string{nvfm.Variable + "=" + nvfm.Write(t, state)}
	cmd.Stdin = strings.NewReader(request)
	var out bytes.Buffer
	cmd.Stdout = &out
	err := cmd.Run()
	var answer manager.Answer
	if wrong := json.Unmarshal(out.Bytes(), &answer); wrong != nil {
		t.Fatalf("%s: %v, %v: %q", request, err, wrong, out.Bytes())
	}
	return answer, cmd.ProcessState.ExitCode()
}

func filled(t *testing.T, built nvfm.Built) {
	state := nvfm.Write(t, "partition 8 1 9\npartition 9 0 10\ngpu 9 GPU-5468ba27-3fa8-325a-92f3-2fb0645c07cf 00000000:86:00.0\n")
	list, err := client(built, state).Partitions(t.Context())
	want := fabric.List{
		{ID: 8, Active: true, GPUs: []fabric.GPU{{Module: 9, UUID: "GPU-5468ba27-3fa8-325a-92f3-2fb0645c07cf", Address: "00000000:86:00.0", Links: 18, MaxLinks: 18, LineRate: 25781}}},
		{ID: 9, GPUs: []fabric.GPU{{Module: 10, Links: 18, MaxLinks: 18, LineRate: 25781}}},
	}
	if diff := cmp.Diff(want, list); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// reports has a UUID that no zero ends, and one device with a bus ID alone.
func reports(t *testing.T, built nvfm.Built) {
	answer, exit := ask(t, built, nvfm.H100, `{"call":"failed","address":"unix:/s","timeoutMs":9}`)
	want := manager.Answer{Failed: []manager.FailedDevice{
		{UUID: strings.Repeat("G", 80), Ports: []int{7}},
		{Switch: true, Address: "00000000:04:00.0", Ports: []int{40, 41}},
	}}
	if diff := cmp.Diff(want, answer); exit != 0 || diff != "" {
		t.Errorf("exit code %d (-want +got):\n%s", exit, diff)
	}
	answer, exit = ask(t, built, nvfm.H100, `{"call":"unsupported","address":"unix:/s","timeoutMs":9}`)
	want = manager.Answer{Unsupported: []manager.Unsupported{{ID: 14, Modules: []int{8}}}}
	if diff := cmp.Diff(want, answer); exit != 0 || diff != "" {
		t.Errorf("exit code %d (-want +got):\n%s", exit, diff)
	}
}

// restart: Fabric Manager answers nothing before it has the list, which may be empty.
func restart(t *testing.T, built nvfm.Built) {
	for _, ids := range [][]int{{}, {3, 4}} {
		m := client(built, nvfm.Write(t, nvfm.H100+"waiting\n"))
		if _, err := m.Partitions(t.Context()); codeOf(err) != fabric.NotConfigured {
			t.Errorf("before the list: got %v, want %s", err, fabric.NotConfigured)
		}
		if err := m.SetActivated(t.Context(), ids); err != nil {
			t.Errorf("set %v: %v", ids, err)
		}
		list, err := m.Partitions(t.Context())
		got := []int{}
		for _, p := range list.Active() {
			got = append(got, p.ID)
		}
		if err != nil || !slices.Equal(got, ids) {
			t.Errorf("got active partitions %v, %v, want %v", got, err, ids)
		}
	}
}

func hangs(t *testing.T, built nvfm.Built) {
	for _, function := range []string{"init", "connect", "partitions", "disconnect"} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		start := time.Now()
		_, err := client(built, nvfm.Write(t, nvfm.H100+"fault "+function+" 1\n")).Partitions(ctx)
		cancel()
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || codeOf(err) != 0 || took > 5*time.Second {
			t.Errorf("%s hangs: got %v after %s, want the deadline", function, err, took)
		}
	}
}

func wrongRequests(t *testing.T, built nvfm.Built) {
	for request, want := range map[string]string{
		``:            "read the request: EOF",
		`{"call":"x"`: "read the request: unexpected EOF",
		`{"call":"list","address":"unix:/s","timeoutMs":9,"force":true}`:                                `read the request: json: unknown field "force"`,
		`{"call":"list","address":"unix:/s"}`:                                                           "timeoutMs is missing",
		`{"call":"erase","address":"unix:/s","timeoutMs":9}`:                                            `call "erase" is none of the helper's`,
		`{"call":"list","address":"/s","timeoutMs":9}`:                                                  `address "/s" of Fabric Manager begins with none of unix:, tcp: and vsock:`,
		`{"call":"list","address":"unix:s","timeoutMs":9}`:                                              `address "unix:s" of Fabric Manager does not name a socket by its absolute path`,
		`{"call":"list","address":"unix:/` + strings.Repeat("s", 107) + `","timeoutMs":9}`:              "must have 1 to 107 bytes",
		`{"call":"list","address":"tcp:localhost","timeoutMs":9}`:                                       "has no port",
		`{"call":"list","address":"unix:/s","timeoutMs":9,"id":1}`:                                      "call list takes no id and ids",
		`{"call":"activate","address":"unix:/s","timeoutMs":9}`:                                         "call activate needs the id of a partition",
		`{"call":"activate","address":"unix:/s","timeoutMs":9,"id":-1}`:                                 "partition -1 is not one of Fabric Manager's numbers",
		`{"call":"setActivated","address":"unix:/s","timeoutMs":9,"ids":[3,3]}`:                         "partition 3 is in the list twice",
		`{"call":"setActivated","address":"unix:/s","timeoutMs":9,"ids":[` + numbersTo(65) + `]}`:       "65 partitions are more than the 64",
		`{"call":"list","address":"unix:/` + strings.Repeat("s", 20000) + `","timeoutMs":9}`:            "unexpected EOF",
		`{"call":"setActivated","address":"unix:/s","timeoutMs":9,"ids":[4294967296]}`:                  "partition 4294967296 is not one of",
		`{"call":"setActivated","address":"unix:/s","timeoutMs":9,"ids":[4294967295],"id":1}`:           "call setActivated takes no id",
		`{"call":"deactivate","address":"vsock:3","timeoutMs":9,"id":1}`:                                "has no port",
		`{"call":"deactivate","address":"unix:/s` + `\u0000` + `","timeoutMs":9,"id":1}`:                "no zero byte",
		`{"call":"deactivate","address":"unix:/s","timeoutMs":4294967296,"id":1}`:                       "cannot unmarshal number 4294967296",
		`{"call":"deactivate","address":"tcp:` + strings.Repeat("s", 256) + `:1","timeoutMs":1,"id":1}`: "must have 1 to 255 bytes",
	} {
		answer, exit := ask(t, built, "", request)
		if exit != manager.ExitRequest || !strings.Contains(answer.Error, want) {
			t.Errorf("%.80s: got exit code %d and %q, want %d and %q", request, exit, answer.Error, manager.ExitRequest, want)
		}
	}
}

func numbersTo(n int) string {
	var list []string
	for i := range n {
		list = append(list, itoa(i))
	}
	return strings.Join(list, ",")
}

func noLibrary(t *testing.T, built nvfm.Built) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.so")
	if out, err := exec.CommandContext(t.Context(), "cc", "-shared", "-o", empty, "-x", "c", os.DevNull).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	static := filepath.Join(dir, "static")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", static, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tt := range []struct{ program, library, want string }{
		{built.Helper, filepath.Join(dir, "none.so"), "cannot open shared object file"},
		{built.Helper, empty, "undefined symbol: fmLibInit"},
		{static, built.Library, "built with CGO_ENABLED=0"},
	} {
		m := client(built, os.DevNull)
		m.Program, m.Args = tt.program, []string{"-library", tt.library}
		if _, err := m.Partitions(t.Context()); err == nil || codeOf(err) != 0 || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", tt.library, err, tt.want)
		}
	}
}
