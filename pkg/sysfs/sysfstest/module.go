package sysfstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// AddModule makes a driver loadable: [Kernel.Load] registers it. The module is
// called as the driver, with "_" for "-".
func (k *Kernel) AddModule(driver string, behaviour Driver) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.modules == nil {
		k.modules = map[string]loadable{}
	}
	k.modules[moduleName(driver)] = loadable{driver, behaviour}
}

// A loadable is a driver in a module that can be loaded.
type loadable struct {
	driver    string
	behaviour Driver
}

// Load loads a module, or all that serve a modalias ("pci:v..."), as modprobe
// does; one that is loaded is no error.
func (k *Kernel) Load(ctx context.Context, module string) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("load module %s: %w", module, err)
	}
	if strings.HasPrefix(module, "pci:") {
		return k.loadFor(ctx, module)
	}
	name := moduleName(module)
	k.mu.Lock()
	m, known := k.modules[name]
	loaded := k.exists("sys/module/" + name)
	k.mu.Unlock()
	switch {
	case loaded:
		return nil
	case !known:
		return fmt.Errorf("load module %s: not found in /lib/modules/%s", module, Release)
	}
	k.AddDriver(m.driver, m.behaviour)
	return nil
}

// loadFor loads the modules whose drivers want the functions with a modalias.
func (k *Kernel) loadFor(ctx context.Context, modalias string) error {
	var names []string
	k.mu.Lock()
	for name, m := range k.modules {
		d := driver{Driver: m.behaviour, name: m.driver}
		for _, f := range k.functions {
			if f.modalias() == modalias && slices.ContainsFunc(d.IDs, func(id Match) bool { return id.matches(f) }) {
				names = append(names, name)
				break
			}
		}
	}
	k.mu.Unlock()
	if len(names) == 0 {
		return fmt.Errorf("load module %s: not found in /lib/modules/%s", modalias, Release)
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, k.Load(ctx, name))
	}
	return errors.Join(errs...)
}

// moduleName returns the name that a driver's module has in sysfs.
func moduleName(driver string) string { return strings.ReplaceAll(driver, "-", "_") }
