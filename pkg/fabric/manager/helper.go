package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/program"
)

// CallLimit is the longest time that a call may take, whatever the context allows. The links of a board train within seconds, and the
// kubelet waits 45 s for a claim.
const CallLimit = 20 * time.Second

// connectLimit is how long the library may take to connect.
const connectLimit = 3 * time.Second

// Helper asks Fabric Manager through the helper program, one process a call.
type Helper struct {
	// Program is the path of kata-vfio-fabric, and Args what it is started with.
	Program string
	Args    []string
	// Address is where Fabric Manager's API is; see [Request].
	Address string
	// Env is the program's environment. The default is none: the loader finds the library by its own configuration.
	Env []string
}

var _ fabric.Manager = (*Helper)(nil)

// Partitions implements [fabric.Manager].
func (h *Helper) Partitions(ctx context.Context) (fabric.List, error) {
	a, err := h.call(ctx, &Request{Call: fabric.CallList})
	if err != nil {
		return nil, err
	}
	if a.Partitions == nil {
		return nil, fmt.Errorf("%s answered no list of partitions", Program)
	}
	return a.Partitions, a.Partitions.Check()
}

// Activate implements [fabric.Manager].
func (h *Helper) Activate(ctx context.Context, id int) error {
	_, err := h.call(ctx, &Request{Call: fabric.CallActivate, ID: &id})
	return err
}

// Deactivate implements [fabric.Manager].
func (h *Helper) Deactivate(ctx context.Context, id int) error {
	_, err := h.call(ctx, &Request{Call: fabric.CallDeactivate, ID: &id})
	return err
}

// SetActivated implements [fabric.Manager].
func (h *Helper) SetActivated(ctx context.Context, ids []int) error {
	_, err := h.call(ctx, &Request{Call: fabric.CallReplay, IDs: ids})
	return err
}

func (h *Helper) call(ctx context.Context, r *Request) (*Answer, error) {
	r.Address, r.TimeoutMS = h.Address, uint32(connectLimit/time.Millisecond)
	if err := r.Check(); err != nil {
		return nil, fmt.Errorf("ask Fabric Manager to %s: %w", r.Call, err)
	}
	stdin, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := limited(ctx, r.Call)
	defer cancel()
	e, err := program.Program{Path: h.Program, Env: h.Env}.Run(ctx, stdin, h.Args...)
	if err != nil {
		return nil, fmt.Errorf("ask Fabric Manager to %s: %w", r.Call, err)
	}
	a, err := readAnswer(e, r.Call)
	if err != nil {
		return nil, err
	}
	return a, nil
}

// limited returns a context that ends at the call's limit, if not before.
func limited(ctx context.Context, call fabric.Call) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, CallLimit, fmt.Errorf("no answer of Fabric Manager to %s within %s", call, CallLimit))
}

// readAnswer reads the output of the helper. The exit code and the answer must agree, or the program is not the helper.
func readAnswer(e *program.Ended, call fabric.Call) (*Answer, error) {
	var a Answer
	if err := json.Unmarshal(e.Stdout, &a); err != nil {
		return nil, fmt.Errorf("ask Fabric Manager to %s: exit code %d of %s, and no answer: %w%s", call, e.Code, Program, err, program.Said(e.Stderr))
	}
	switch {
	case e.Code == ExitSuccess && a.Code == 0 && a.Error == "":
		return &a, nil
	case e.Code == ExitRefused && a.Code != 0:
		return nil, &fabric.CodeError{Call: call, Code: fabric.Code(a.Code)}
	case a.Error != "":
		return nil, fmt.Errorf("ask Fabric Manager to %s: %s", call, words(a.Error))
	}
	return nil, fmt.Errorf("ask Fabric Manager to %s: exit code %d of %s does not fit its answer %q", call, e.Code, Program, program.Beginning(e.Stdout))
}

// words returns a text of the helper in a form that fits into a sentence. The text may quote the library and Fabric Manager.
func words(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(string(program.Beginning([]byte(text))), ""))
}
