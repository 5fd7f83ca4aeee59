package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// drainView is a drain. Its JSON names are stable.
type drainView struct {
	*maintain.Draining
	State string `json:"state"`
}

func newDrainView(d *maintain.Draining, dryRun bool) drainView {
	switch {
	case dryRun:
		return drainView{d, "planned"}
	case d.Done():
		return drainView{d, "drained"}
	}
	return drainView{d, "draining"}
}

// printDraining prints the functions of a drain, and its state.
func printDraining(w io.Writer, format string, d *maintain.Draining, dryRun bool) error {
	if done, err := document(w, format, newDrainView(d, dryRun)); done {
		return err
	}
	rows := [][]string{{"FUNCTION", "DEVICE", "DRIVER", "GOES BACK TO"}}
	for _, f := range d.Functions {
		rows = append(rows, []string{f.Address.String(), orDash(f.Name), driverNow(f), homeWords(f)})
	}
	if err := table(w, rows); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "\n"+drainWords(d, dryRun))
	return err
}

func driverNow(f maintain.DrainedFunction) string {
	if f.Gone {
		return "(off the bus)"
	}
	return orDash(f.Driver)
}

// homeWords returns the driver to which a function goes. A function on VFIO without a record of another driver was found there.
func homeWords(f maintain.DrainedFunction) string {
	if f.Driver == f.Home && device.IsVFIO(f.Driver) {
		return "stays: no record of another driver"
	}
	return orDash(f.Home)
}

func drainWords(d *maintain.Draining, dryRun bool) string {
	switch {
	case dryRun && d.Done():
		return "No claim has it: `drain` would keep it from new claims and leave its driver as it is."
	case dryRun && d.Due():
		return "No claim has it: `drain` would keep it from new claims and bind it to its original driver."
	case dryRun:
		return fmt.Sprintf("`drain` would keep it from new claims and wait: %s.", waitingFor(d))
	case d.Done():
		return fmt.Sprintf("%s is drained: %s. Bring it back with `kata-vfio-plugin undrain %s`.", d.Address, d.Reason, d.Address)
	}
	return fmt.Sprintf("%s is kept from new claims: %s", d.Address, d.Reason)
}

// undrainedView is the result of undrain. Its JSON names are stable.
type undrainedView struct {
	Address   pci.Address `json:"address"`
	Undrained bool        `json:"undrained"`
	// Still is the function whose drain still includes the requested one.
	Still *pci.Address `json:"stillDrainedWith,omitempty"`
}

// printUndrained prints the result of undrain for a function.
func printUndrained(w io.Writer, format string, asked pci.Address, v undrainedView) error {
	if done, err := document(w, format, v); done {
		return err
	}
	text := fmt.Sprintf("%s was not drained.", v.Address)
	switch {
	case v.Still != nil:
		text = fmt.Sprintf("%s is undrained, but %s stays drained with %s: `kata-vfio-plugin undrain %s`.", v.Address, asked, *v.Still, *v.Still)
	case v.Undrained:
		text = fmt.Sprintf("%s is in use again: the plugin offers it as before.", v.Address)
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// printDrains prints the drains below the status.
func printDrains(w io.Writer, s *nodeStatus) error {
	for i := range s.drains {
		d := &s.drains[i]
		evict, gone := "", ""
		if d.Evict {
			evict = ", pods that have it are evicted"
		}
		if d.Gone {
			gone = "; it is gone, and another device has its address"
		}
		_, err := fmt.Fprintf(w, "\n%s is drained since %s (%s)%s: %s%s%s\n", d.Address, orDash(d.Since), orDash(d.By), evict, d.Reason, gone, s.stillWith(d))
		if err != nil {
			return err
		}
	}
	return nil
}

// stillWith names the claims that have a drained function, or left it in quarantine. A claim of an earlier boot has ended.
func (s *nodeStatus) stillWith(d *journal.Drain) string {
	var text strings.Builder
	for i := range s.views {
		v := &s.views[i]
		rec := journal.Record{}
		rec.Plan.Functions = v.Functions
		if v.Kind == journal.Bound || !d.Concerns(&rec) {
			continue
		}
		switch {
		case v.State == journal.Quarantined:
			text.WriteString("; quarantined since claim " + v.UID)
		case s.bootID != "" && v.bootID != s.bootID:
			text.WriteString("; claim " + v.UID + " had it before the node's restart")
		default:
			text.WriteString("; claim " + v.UID + " has it still")
		}
	}
	return text.String()
}
