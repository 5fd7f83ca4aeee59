package guestnet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// errorf returns an error about the target's interface.
func (t *target) errorf(format string, args ...any) error {
	return fmt.Errorf("%s, interface %s: %w", t.Device, &t.link, fmt.Errorf(format, args...))
}

// rename gives the interfaces their names. Those whose name another target
// wants step aside first, so that two may exchange names.
func (r *run) rename(ctx context.Context) error {
	links, err := r.kernel.links(ctx)
	if err != nil {
		return err
	}
	for _, t := range r.targets {
		if err := r.checkName(t, links); err != nil {
			return err
		}
	}
	for _, t := range r.targets {
		if !t.renames() || !slices.ContainsFunc(r.targets, func(o *target) bool { return o.Network.Interface == t.link.name }) {
			continue
		}
		aside := fmt.Sprintf("kata-vfio%d", t.link.index)
		if err := r.change(ctx, t, "rename to "+aside, func() error { return r.kernel.setName(t.link.index, aside) }); err != nil {
			return err
		}
	}
	for _, t := range r.targets {
		if err := r.renameOne(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// renames reports whether the target's interface gets another name.
func (t *target) renames() bool {
	return t.Network.Interface != "" && t.Network.Interface != t.link.name
}

// checkName refuses a name that an interface has which keeps it.
func (r *run) checkName(t *target, links []link) error {
	name := t.Network.Interface
	i := slices.IndexFunc(links, func(l link) bool { return l.name == name || slices.Contains(l.altNames, name) })
	if !t.renames() || i < 0 {
		return nil
	}
	holder := &links[i]
	leaves := slices.ContainsFunc(r.targets, func(o *target) bool { return o.link.index == holder.index && o.renames() })
	if holder.name == name && leaves {
		return nil
	}
	return t.errorf("the name %q is taken by %s; ask for another", name, holder)
}

func (r *run) renameOne(ctx context.Context, t *target) error {
	if !t.renames() {
		return nil
	}
	name := t.Network.Interface
	if err := r.change(ctx, t, "rename to "+name, func() error { return r.kernel.setName(t.link.index, name) }); err != nil {
		return err
	}
	t.result.Name.change(name)
	if r.DryRun {
		return nil
	}
	// It may have been taken down for it.
	var err error
	t.link, err = r.kernel.link(ctx, t.link.index)
	return err
}

func (r *run) setMTU(ctx context.Context, t *target) error {
	asked := t.Network.MTU
	if asked == nil || *asked == t.link.mtu {
		return nil
	}
	err := r.change(ctx, t, fmt.Sprintf("set MTU %d", *asked), func() error { return r.kernel.setMTU(t.link.index, *asked) })
	if errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w; a VF takes no more than its PF's MTU allows", err)
	}
	if err == nil {
		t.result.MTU.change(*asked)
	}
	return err
}

func (r *run) setUp(ctx context.Context, t *target) error {
	if t.link.up {
		return nil
	}
	if err := r.change(ctx, t, "set up", func() error { return r.kernel.setUp(t.link.index) }); err != nil {
		return err
	}
	t.result.Up.Value = false
	t.result.Up.change(true)
	return nil
}

// await waits for the links and then for the addresses, which need them.
func (r *run) await(ctx context.Context) error {
	if !r.NoWaitLink {
		if err := r.awaitLinks(ctx); err != nil {
			return err
		}
	}
	return r.awaitAddresses(ctx)
}

func (r *run) awaitLinks(ctx context.Context) error {
	var down []string
	done, err := poll(ctx, r.Wait, r.Log, func() (string, error) {
		down = nil
		for _, t := range r.targets {
			l, err := r.kernel.link(ctx, t.link.index)
			if err != nil {
				return "", t.errorf("wait for the link: %w", err)
			}
			if !l.carrier {
				down = append(down, printable(l.name))
			}
		}
		if len(down) == 0 {
			return "", nil
		}
		return "link of " + strings.Join(down, ", "), nil
	})
	if err == nil && !done {
		return &NoLinkError{Interfaces: down, Wait: r.Wait}
	}
	return err
}
