package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// defaultBlueprint is where a node's blueprint is, below its root.
const defaultBlueprint = "etc/kata-vfio/blueprint.yaml"

// read returns the blueprint to go by and its text: that of the flag, the node's own,
// what was applied last, or the default, which has no text.
func (o *options) read(e *bootstrap.Engine) (*blueprint.Blueprint, string, error) {
	if o.blueprint != "" {
		return o.readNamed()
	}
	text, err := e.Tree.ReadAtMost(defaultBlueprint, blueprint.MaxSize+1)
	if err == nil {
		return parse("/"+defaultBlueprint, string(text))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("read the blueprint: %w", err)
	}
	report, err := e.Status()
	if err != nil {
		return nil, "", err
	}
	if report.Blueprint == "" {
		return blueprint.Default(), "", nil
	}
	return parse("the blueprint that was applied last", report.Blueprint)
}

// readNamed returns the blueprint of the flag. Standard input is read once and kept.
func (o *options) readNamed() (*blueprint.Blueprint, string, error) {
	if o.blueprint != "-" || o.given == nil {
		text, err := command.ReadArgument(os.Stdin, o.blueprint, blueprint.MaxSize)
		if err != nil {
			return nil, "", fmt.Errorf("read the blueprint: %w", err)
		}
		o.given = text
	}
	return parse(o.blueprint, string(o.given))
}

func parse(name, text string) (*blueprint.Blueprint, string, error) {
	b, err := blueprint.Parse([]byte(text))
	if err != nil {
		return nil, "", command.Usagef("%s: %w", name, err)
	}
	return b, text, nil
}
