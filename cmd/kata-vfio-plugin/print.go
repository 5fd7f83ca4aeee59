package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
)

// document prints a value in one of the machine formats; false for "table".
func document(w io.Writer, format string, v any) (bool, error) {
	return output.Document(w, format, "the result", v)
}

// table prints rows in columns, within the width of a terminal. least are the columns that a narrow one goes without.
func table(w io.Writer, rows [][]string, least ...string) error {
	_, err := io.WriteString(w, strings.Join(output.Columns(rows, output.TableWidth(w), least...), "\n")+"\n")
	return err
}

// printPlan prints a plan: the devices, and the steps.
func printPlan(w io.Writer, format string, pl *plan.Plan) error {
	if done, err := document(w, format, pl); done {
		return err
	}
	fmt.Fprintf(w, "Claim %s\n\n", pl.Claim)
	rows := [][]string{{"DEVICE", "BACKEND", "POLICY", "RESET", "TAKES"}}
	for i := range pl.Devices {
		d := &pl.Devices[i]
		rows = append(rows, []string{d.Name, way(d), string(d.Policy), resetWords(d.Resets), takes(pl, d)})
	}
	if err := table(w, rows, "POLICY", "BACKEND"); err != nil {
		return err
	}
	for i := range pl.Devices {
		if d := &pl.Devices[i]; d.Lease != nil {
			fmt.Fprintf(w, "\n%s has addresses from pool %s (%s)\n", d.Name, d.Lease.Pool, d.Lease.Plugin)
		}
	}
	fmt.Fprintln(w)
	if err := printSteps(w, format, pl.Steps); err != nil {
		return err
	}
	for _, module := range guessed(pl) {
		fmt.Fprintf(w, "\nModule %s is not loaded: its driver may have another name than the plan shows. The name is known once the module is loaded.\n", module)
	}
	return nil
}

// guessed returns the modules whose drivers' names in the plan are unknown before the modules are loaded.
func guessed(pl *plan.Plan) []string {
	return slices.DeleteFunc(slices.Clone(pl.Modules), func(module string) bool {
		return device.SameDriver(module, device.GenericVFIO) || !slices.ContainsFunc(pl.Functions, func(fn plan.Function) bool {
			return device.SameDriver(fn.Target.Driver, module)
		})
	})
}

// way returns how the VM gets a device: through a VFIO interface, or as a physical endpoint.
func way(d *plan.Device) string {
	if d.Attachment == v1alpha1.AttachPhysicalEndpoint {
		return string(d.Attachment)
	}
	return string(d.Backend)
}

// takes lists the functions of the device's card and group: the device's own, and the others by role. Those with the same
// device number are listed by their function number: "0000:70:00.0, companions .1 .2 .3".
func takes(pl *plan.Plan, d *plan.Device) string {
	own, ok := pl.Function(d.Address)
	var text strings.Builder
	text.WriteString(d.Address.String())
	for _, role := range []plan.Role{plan.RoleGroupMate, plan.RoleCompanion} {
		var words []string
		for _, fn := range pl.Functions {
			if ok && fn.Role == role && (fn.Group == own.Group || fn.Card() == own.Card()) {
				words = append(words, short(fn.Address, d.Address))
			}
		}
		if len(words) > 0 {
			text.WriteString(", " + roleWord(role, len(words)) + " " + strings.Join(words, " "))
		}
	}
	return text.String()
}

// short returns an address next to another one: ".1" with the same device number.
func short(a, beside pci.Address) string {
	if a.SameSlot(beside) {
		return fmt.Sprintf(".%d", a.Function)
	}
	return a.String()
}

func roleWord(role plan.Role, n int) string {
	if role == plan.RoleGroupMate {
		return output.Plural(n, "group mate")
	}
	return output.Plural(n, "companion")
}

func resetWords(resets []isolation.Reset) string {
	if len(resets) == 0 {
		return "skip"
	}
	words := make([]string, len(resets))
	for i, r := range resets {
		words[i] = r.Method
	}
	return strings.Join(words, "+")
}

// printSteps prints the steps of a plan or of its release.
func printSteps(w io.Writer, format string, steps []plan.Step) error {
	if done, err := document(w, format, map[string]any{"steps": steps}); done {
		return err
	}
	if len(steps) == 0 {
		_, err := fmt.Fprintln(w, "Nothing to do: every function is as it should be.")
		return err
	}
	rows := [][]string{{"STEP", "OPERATION", "ADDRESS", "DRIVER", "BY"}}
	for i, s := range steps {
		rows = append(rows, []string{fmt.Sprint(i + 1), string(s.Operation), address(s.Address), drivers(s), by(s)})
	}
	return table(w, rows)
}

// drivers returns how a step changes the function's driver.
func drivers(s plan.Step) string {
	if s.DriverBefore == s.DriverAfter {
		return orDash(s.DriverAfter)
	}
	return orDash(s.DriverBefore) + " -> " + orDash(s.DriverAfter)
}

// by returns how a step is done: the attribute, and its value unless that is the function's address.
func by(s plan.Step) string {
	switch s.Operation {
	case plan.Load:
		return "modprobe " + s.Value
	case plan.Unbind:
		return "drivers/" + s.DriverBefore + "/unbind"
	case plan.Override:
		return "driver_override: " + orDash(s.Former) + " -> " + orDash(s.Value)
	case plan.Probe:
		return "drivers_probe"
	case plan.Reset:
		return s.Value + " of " + joined(s.Set)
	case plan.ConfigureVF:
		return "PF: " + s.Value
	case plan.TakeAddress:
		return "from pool " + s.Value
	case plan.ReturnAddress:
		return "to pool " + s.Value
	case plan.SetValue:
		return fmt.Sprintf("%s, %s: %s -> %s", s.Provider, s.Setting, orDash(s.Former), orDash(s.Value))
	}
	return ""
}

func address(a pci.Address) string {
	if a == (pci.Address{}) {
		return "-"
	}
	return a.String()
}

func joined(addrs []pci.Address) string {
	words := make([]string, len(addrs))
	for i, a := range addrs {
		words[i] = a.String()
	}
	return strings.Join(words, ", ")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// progress returns an observer that prints each step when it ends, with its time; nil if a program reads the result.
func (o *options) progress(w io.Writer) func(effects.Event) {
	if o.output != "table" {
		return nil
	}
	var mu sync.Mutex // serializes the lines of parallel groups
	return func(e effects.Event) {
		if e.Step == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(w, progressLine(e))
	}
}

// progressLine returns the line for one step: mark, time and action.
func progressLine(e effects.Event) string {
	mark := "ok  "
	if e.Err != nil {
		mark = "FAIL"
	}
	line := fmt.Sprintf("  %s %7.1f ms  %s", mark, float64(e.Took)/float64(time.Millisecond), e.Step)
	if e.Proof != nil {
		line += ", " + isolation.Proven
	}
	return line
}
