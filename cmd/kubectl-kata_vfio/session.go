package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/kube"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

// session is what the command line says of the cluster.
type session struct {
	kube kube.Flags
	// connect returns the cluster, and the namespace that is meant.
	connect func() (lister, string, error)
	now     func() time.Time
}

// newSession asks the cluster that the flags name.
func newSession() *session {
	s := &session{now: time.Now}
	s.connect = s.connectByFlags
	return s
}

func (s *session) connectByFlags() (lister, string, error) {
	config, err := s.kube.Config("kubectl-kata_vfio")
	if err != nil {
		return nil, "", err
	}
	namespace, err := s.kube.Namespace()
	if err != nil {
		return nil, "", err
	}
	config.WarningHandler = rest.NoWarnings{} // those of deprecated APIs are for who maintains this
	client, err := kube.NewClient(config)
	if err != nil {
		return nil, "", err
	}
	return client, namespace, nil
}

// output is how a command prints.
type output struct {
	formats command.Formats
	format  string
	watch   bool
}

func (o *output) flags(cmd *cobra.Command) {
	o.formats.Flag(cmd, &o.format)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "watch: redraw the screen when something changes; without a terminal, write the rows that changed (json: one a line)")
}

func (o *output) check() error {
	if o.watch && o.format == "yaml" {
		return command.Usagef("--watch -o yaml: use json, which writes one change a line")
	}
	return o.formats.Check(o.format)
}

// view is what a command shows of what is listed.
type view struct {
	want
	output
	// picture decides what is shown. Its error is printed after it, and is the verdict.
	picture func(*fleet.State) (*picture, error)
}

// view returns one that needs a kind, and shows more with another.
func (s *session) view(needs, also fleet.Kind, formats command.Formats) *view {
	return &view{want: want{needs: []fleet.Kind{needs}, also: []fleet.Kind{also}, now: s.now}, output: output{formats: formats}}
}

// requestLimit is how long the API server may take for all that it is asked once.
const requestLimit = 2 * time.Minute

// show prints the view, once or until a signal ends it.
func (v *view) show(ctx context.Context, cmd *cobra.Command, client lister) error {
	state, err := v.list(ctx, client)
	if err != nil {
		return err
	}
	v.warn(cmd.ErrOrStderr(), state)
	if !v.watch {
		p, verdict := v.picture(state)
		if p == nil {
			return verdict
		}
		return errors.Join(p.print(cmd.OutOrStdout(), v.format), verdict)
	}
	screen := newScreen(cmd.OutOrStdout(), v.format)
	return v.follow(ctx, client, state.Missing, cmd.ErrOrStderr(), func(s *fleet.State) error {
		p, err := v.picture(s)
		if p == nil {
			return err
		}
		return screen.show(p)
	})
}

// list lists once, within the limit.
func (v *view) list(ctx context.Context, client lister) (*fleet.State, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	return v.read(ctx, client)
}

// warn says what lessens what is shown.
func (v *view) warn(warnings io.Writer, state *fleet.State) {
	lost := map[fleet.Kind]string{
		fleet.Slices: "the state that nodes report of devices is not shown",
		fleet.Claims: "the claims of devices are unknown",
		fleet.Pods:   "pods and their VMs are not shown",
		fleet.Events: "events are not shown",
	}
	for _, kind := range slices.Sorted(maps.Keys(state.Missing)) {
		fmt.Fprintf(warnings, "warning: %s: %s could not be listed: %s\n", lost[kind], kind, terminal.Visible(state.Missing[kind]))
	}
	for _, name := range state.Unfinished() {
		fmt.Fprintf(warnings, "warning: pool %s is being written: some of its devices may not be shown\n", terminal.Visible(name))
	}
}
