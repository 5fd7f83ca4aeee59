package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/kube"
)

// session has the command line's flags about the cluster.
type session struct {
	kube kube.Flags
	// connect returns the cluster, and the requested namespace.
	connect func() (changer, string, error)
	now     func() time.Time
}

// newSession returns a session with the cluster that the flags name.
func newSession() *session {
	s := &session{now: time.Now}
	s.connect = s.connectByFlags
	return s
}

func (s *session) connectByFlags() (changer, string, error) {
	config, err := s.kube.Config("kubectl-kata_vfio")
	if err != nil {
		return nil, "", err
	}
	namespace, err := s.kube.Namespace()
	if err != nil {
		return nil, "", err
	}
	config.WarningHandler = rest.NoWarnings{} // warnings about deprecated APIs are for this program's maintainers
	client, err := kube.NewClient(config)
	if err != nil {
		return nil, "", err
	}
	return client, namespace, nil
}

// printing has a command's flags for output.
type printing struct {
	formats command.Formats
	// format is one of them, without the argument that follows an equal sign.
	format           string
	watch, noHeaders bool
	sortBy           string

	query   *query
	columns *columns
	sort    *query
}

func (o *printing) flags(cmd *cobra.Command) {
	o.formats.Flag(cmd, &o.format)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "watch: redraw the screen when something changes; without a terminal, write the rows that changed (json: one a line)")
	if slices.Contains(o.formats, "table") {
		cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "print tables without titles")
		cmd.Flags().StringVar(&o.sortBy, "sort-by", "", "sort rows by this `field` of -o json, such as .name")
	}
}

// tableFormats are the formats of a command that prints a table.
func tableFormats() command.Formats {
	return command.Formats{"table", "wide", "json", "yaml", "name", customColumns + "=", jsonPath + "="}
}

func (o *printing) check() error {
	format, argument, hasArgument := strings.Cut(o.format, "=")
	if hasArgument {
		format += "="
	}
	if err := o.formats.Check(format); err != nil {
		return err
	}
	if o.format = strings.TrimSuffix(format, "="); o.watch && !slices.Contains([]string{"table", "wide", "tree", "json"}, o.format) {
		return command.Usagef("--watch -o %s: use json, which writes one change a line", o.format)
	}
	return o.parse(argument)
}

// parse reads the format's argument and the field to sort by.
func (o *printing) parse(argument string) (err error) {
	switch o.format {
	case jsonPath:
		o.query, err = newQuery(argument, false)
	case customColumns:
		o.columns, err = newColumns(argument)
	}
	if err != nil || o.sortBy == "" {
		return err
	}
	if slices.Contains([]string{"json", "yaml", jsonPath}, o.format) {
		return command.Usagef("--sort-by sorts rows: -o %s has none", o.format)
	}
	o.sort, err = newQuery(o.sortBy, true)
	return err
}

// shape returns the picture according to the flags.
func (o *printing) shape(p *picture) (*picture, error) {
	p.bare = o.noHeaders
	if o.sort != nil {
		if err := sortRows(p.rows, o.sort); err != nil {
			return nil, err
		}
	}
	if o.columns != nil {
		return o.columns.of(p)
	}
	return p, nil
}

// view is a command's picture of the listed objects.
type view struct {
	want     want
	printing printing
	// picture returns the picture. Its error is the verdict, and is printed after it.
	picture func(*fleet.State) (*picture, error)
}

// view returns a view that needs one kind, and shows more with others.
func (s *session) view(needs fleet.Kind, formats command.Formats, also ...fleet.Kind) *view {
	return &view{want: want{needs: []fleet.Kind{needs}, also: also, now: s.now}, printing: printing{formats: formats}}
}

// requestLimit is the time that the API server may take for one round of requests.
const requestLimit = 2 * time.Minute

// show prints the view, once or until a signal ends it.
func (v *view) show(ctx context.Context, cmd *cobra.Command, client lister) error {
	state, err := v.list(ctx, client)
	if err != nil {
		return err
	}
	v.warn(cmd.ErrOrStderr(), state)
	if !v.printing.watch {
		p, verdict := v.draw(state)
		if p == nil {
			return verdict
		}
		return errors.Join(v.printing.print(cmd.OutOrStdout(), p), verdict)
	}
	screen := newScreen(cmd.OutOrStdout(), v.printing.format)
	return v.want.follow(ctx, client, state.Missing, cmd.ErrOrStderr(), func(s *fleet.State) error {
		p, err := v.draw(s)
		if p == nil {
			return err
		}
		return screen.show(p)
	})
}

// draw returns the picture of a state, and the verdict.
func (v *view) draw(state *fleet.State) (*picture, error) {
	p, verdict := v.picture(state)
	if p == nil {
		return nil, verdict
	}
	p, err := v.printing.shape(p)
	if err != nil {
		return nil, err
	}
	return p, verdict
}

// list lists once, within the limit.
func (v *view) list(ctx context.Context, client lister) (*fleet.State, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	return v.want.read(ctx, client)
}

// warn names the kinds that are missing from the picture.
func (v *view) warn(warnings io.Writer, state *fleet.State) {
	lost := map[fleet.Kind]string{
		fleet.Slices: "the state that nodes report of devices is not shown",
		fleet.Claims: "the claims of devices are unknown",
		fleet.Pods:   "pods and their VMs are not shown",
		fleet.Events: "events are not shown",

		fleet.Components: "it is unknown where the plugin runs", fleet.DaemonSets: "rollouts are not shown", fleet.Deployments: "the controller is not shown",
	}
	for _, kind := range slices.Sorted(maps.Keys(state.Missing)) {
		if kind == fleet.Classes || kind == fleet.TaintRules {
			continue // the role view does not grant them (the help of claims says so of DeviceClasses), and older clusters have no DeviceTaintRules
		}
		fmt.Fprintf(warnings, "warning: %s: %s could not be listed: %s\n", lost[kind], kind, output.Visible(state.Missing[kind]))
	}
	for _, name := range state.Unfinished() {
		fmt.Fprintf(warnings, "warning: pool %s is being written: some of its devices may not be shown\n", output.Visible(name))
	}
}
