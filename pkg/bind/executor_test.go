package bind_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

var gpu = pci.Address{Bus: 0x3b}

// Steps of taking the GPU from nvidia to vfio-pci.
var (
	unbindStep   = plan.Step{Operation: plan.Unbind, Address: gpu, DriverBefore: "nvidia"}
	overrideStep = plan.Step{Operation: plan.Override, Address: gpu, Value: "vfio-pci"}
	probeStep    = plan.Step{Operation: plan.Probe, Address: gpu, DriverAfter: "vfio-pci"}
)

// newNode returns a node with one GPU on nvidia, and an executor for it.
func newNode(t *testing.T) (*sysfstest.Kernel, *sysfs.FS, *bind.Executor) {
	t.Helper()
	k := sysfstest.New(t)
	if got := k.AddGPU(0x3b); got != gpu {
		t.Fatalf("the GPU is at %s, want %s", got, gpu)
	}
	fs, err := sysfs.Open(k.Root())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	return k, fs, bind.New(fs, control.New(k, fs, 10*time.Second), k, k.Exclude)
}

// do carries out steps that must succeed.
func do(t *testing.T, e *bind.Executor, steps ...plan.Step) {
	t.Helper()
	for _, s := range steps {
		if err := e.Do(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStepsAndTheirRepetition(t *testing.T) {
	k, _, e := newNode(t)
	for range 2 {
		do(t, e, unbindStep, overrideStep, probeStep)
		b, err := e.Binding(t.Context(), gpu)
		if want := (plan.Binding{Driver: "vfio-pci", Override: "vfio-pci"}); err != nil || b != want {
			t.Fatalf("Binding = %+v, %v; want %+v", b, err, want)
		}
		unbindStep := plan.Step{Operation: plan.Unbind, Address: gpu, DriverBefore: "vfio-pci"}
		clearStep := plan.Step{Operation: plan.Override, Address: gpu, Former: "vfio-pci"}
		probeStep := plan.Step{Operation: plan.Probe, Address: gpu, DriverAfter: "nvidia"}
		do(t, e, unbindStep, unbindStep, clearStep, clearStep, probeStep)
		writes := len(k.Writes())
		do(t, e, probeStep)
		if len(k.Writes()) != writes {
			t.Error("a probe was written for a function that has the driver")
		}
	}
	b, err := e.Binding(t.Context(), gpu)
	if want := (plan.Binding{Driver: "nvidia"}); err != nil || b != want {
		t.Errorf("Binding = %+v, %v; want %+v", b, err, want)
	}
}

// A failure is a step that is not done: what the node does, and what the
// error says.
type failure struct {
	before []plan.Step
	node   func(*sysfstest.Kernel)
	step   plan.Step
	is     error // for errors.Is
	words  []string
}

func refuse(errno unix.Errno, suffix string) func(*sysfstest.Kernel) {
	return func(k *sysfstest.Kernel) {
		k.OnWrite(func(path, _ string) error {
			if strings.HasSuffix(path, suffix) {
				return errno
			}
			return nil
		})
	}
}

func failures() map[string]failure {
	gone := func(k *sysfstest.Kernel) { k.Remove(gpu) }
	return map[string]failure{
		"unbind refused": {
			node: refuse(unix.EBUSY, "/unbind"), step: unbindStep, is: unix.EBUSY,
			words: []string{"unbind 0000:3b:00.0 from nvidia", "/sys/bus/pci/drivers/nvidia/unbind"},
		},
		"override refused": {
			node: refuse(unix.EACCES, "/driver_override"), step: overrideStep, is: unix.EACCES,
			words: []string{"set driver_override of 0000:3b:00.0 to vfio-pci", "run as root"},
		},
		"override that does not stick": {
			node: func(k *sysfstest.Kernel) {
				k.AfterWrite(func(path, value string) {
					if value == "vfio-pci" {
						_ = k.Write(path, []byte("nvidia")) // another tool has its own idea
					}
				})
			},
			step: overrideStep, words: []string{`reads "nvidia" after "vfio-pci" was written`},
		},
		"probe refused": {
			before: []plan.Step{unbindStep, overrideStep},
			node:   refuse(unix.EIO, "/drivers_probe"), step: probeStep, is: unix.EIO,
			words: []string{"probe 0000:3b:00.0 for vfio-pci"},
		},
		"probe without a match": {
			before: []plan.Step{unbindStep},
			step:   plan.Step{Operation: plan.Probe, Address: gpu, DriverAfter: "vfio-pci"},
			node:   func(k *sysfstest.Kernel) { k.RemoveDriver("nvidia") },
			is:     bind.ErrNoMatch, words: []string{"no driver took it"},
		},
		"a function that is gone, at unbind": {node: gone, step: unbindStep, is: sysfs.ErrNoFunction},
		"a function that is gone, at probe":  {node: gone, step: probeStep, is: sysfs.ErrNoFunction},
		"an override without its function":   {node: gone, step: overrideStep, is: sysfs.ErrNoFunction},
		"a module that is not there": {
			step:  plan.Step{Operation: plan.Load, Value: "nvgrace_gpu_vfio_pci"},
			words: []string{"load module nvgrace_gpu_vfio_pci", "not found"},
		},
		"an operation of another kind": {
			step: plan.Step{Operation: plan.Reset, Address: gpu, Value: "flr"}, words: []string{"not an operation of binding"},
		},
	}
}

func TestStepErrors(t *testing.T) {
	for name, tt := range failures() {
		t.Run(name, func(t *testing.T) {
			k, _, e := newNode(t)
			do(t, e, tt.before...)
			if tt.node != nil {
				tt.node(k)
			}
			err := e.Do(t.Context(), tt.step)
			var step *bind.StepError
			if !errors.As(err, &step) || step.Step.Operation != tt.step.Operation {
				t.Fatalf("got %v, want a StepError of the step", err)
			}
			if tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("got %v, want %v", err, tt.is)
			}
			for _, word := range tt.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error is %q, want it to say %q", err, word)
				}
			}
		})
	}
}

// TestTaken: another driver than the step's has the function, before the step
// or after it.
func TestTaken(t *testing.T) {
	comeBack := func(k *sysfstest.Kernel) {
		k.AfterWrite(func(path, value string) {
			if strings.HasSuffix(path, "/unbind") {
				_ = k.Write("sys/bus/pci/drivers_probe", []byte(value))
			}
		})
	}
	for name, tt := range map[string]struct {
		before []plan.Step
		node   func(*sysfstest.Kernel)
		step   plan.Step
	}{
		"unbind from a driver that has lost it": {
			step: plan.Step{Operation: plan.Unbind, Address: gpu, DriverBefore: "nouveau"},
		},
		"unbind, and the driver comes back":   {node: comeBack, step: unbindStep},
		"probe, and another driver was first": {before: []plan.Step{unbindStep}, step: probeStep},
		"probe of a bound function":           {step: probeStep},
	} {
		t.Run(name, func(t *testing.T) {
			k, _, e := newNode(t)
			do(t, e, tt.before...)
			if tt.node != nil {
				tt.node(k)
			}
			err := e.Do(t.Context(), tt.step)
			var taken *bind.TakenError
			if !errors.As(err, &taken) || taken.Driver != "nvidia" {
				t.Fatalf("got %v, want it taken by nvidia", err)
			}
			if !strings.Contains(err.Error(), "nvidia has it now") || !strings.Contains(err.Error(), "blacklist") {
				t.Errorf("error is %q, want driver and blacklist in it", err)
			}
		})
	}
}

// TestNothingIsDoneOnceTheContextIsOver: a step that has not begun does not.
func TestNothingIsDoneOnceTheContextIsOver(t *testing.T) {
	k, _, e := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Do(ctx, unbindStep); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if len(k.Writes()) > 0 {
		t.Errorf("wrote %v, want nothing", k.Writes())
	}
}

func TestBindingOfNothing(t *testing.T) {
	_, _, e := newNode(t)
	if _, err := e.Binding(t.Context(), pci.Address{Bus: 0xee}); !errors.Is(err, sysfs.ErrNoFunction) {
		t.Errorf("got %v, want %v", err, sysfs.ErrNoFunction)
	}
}

// TestVFIsProbedByName where its PF lets no host driver in by itself, and the name is gone afterwards, whatever became of it.
func TestVFIsProbedByName(t *testing.T) {
	k, fs, e := newNode(t)
	pf, vfs := k.AddNIC(0x21, 1)
	driver, err := fs.Driver(vfs[0])
	if err != nil || driver == "" {
		t.Fatalf("%s is on %q, %v; want a driver", vfs[0], driver, err)
	}
	if err := e.SetVFs(t.Context(), pf, 1); err != nil {
		t.Fatal(err)
	}
	do(t, e, plan.Step{Operation: plan.Unbind, Address: vfs[0], DriverBefore: driver}, plan.Step{Operation: plan.Probe, Address: vfs[0], DriverAfter: driver})
	b, err := e.Binding(t.Context(), vfs[0])
	if want := (plan.Binding{Driver: driver}); err != nil || b != want {
		t.Errorf("Binding = %+v, %v; want %+v", b, err, want)
	}
	do(t, e, plan.Step{Operation: plan.Unbind, Address: vfs[0], DriverBefore: driver})
	err = e.Do(t.Context(), plan.Step{Operation: plan.Probe, Address: vfs[0], DriverAfter: "unheard-of"})
	if b, _ := e.Binding(t.Context(), vfs[0]); !errors.Is(err, bind.ErrNoMatch) || b != (plan.Binding{}) {
		t.Errorf("a driver that is not there: %v, bound %+v; want %v and no binding", err, b, bind.ErrNoMatch)
	}
}
