package main

import (
	"fmt"
	"strings"
)

// Exit codes beyond those of each program. Each command's help has those that it can end with.
const (
	// exitFindings: something is not as it should be.
	exitFindings = 3
	// exitForbidden: the user may not list the objects that the command shows.
	exitForbidden = 4
	// exitNotFound: the claim, pod, node or device does not exist.
	exitNotFound = 5
)

// meaning is what an exit code means for some commands.
type meaning struct {
	code     int
	text     string
	commands []string
}

func meanings() []meaning {
	return []meaning{
		{exitFindings, "a check fails at the severity of --fail-on or worse", []string{"audit"}},
		{exitFindings, "a requirement of level MUST is not shown", []string{"conformance"}},
		{exitFindings, "something needs attention", []string{"status"}},
		{exitFindings, "the cluster would refuse something", []string{"lint"}},
		{exitFindings, "a node fails", []string{"test"}},
		{exitFindings, "after --timeout, claims still have devices (with --wait), or the plugin is still writing a pool", []string{"drain"}},
		{exitForbidden, "you may not list what the command shows", []string{"audit", "claims", "classes", "conformance", "devices", "explain", "lint", "quarantine", "status", "topology"}},
		{exitForbidden, "you may not list what the command needs, or not change what it changes", []string{"drain", "test", "undrain"}},
		{exitForbidden, "you may list nothing (what else is missing is in the archive's manifest, with code 0)", []string{"sysdump"}},
		{exitNotFound, "there is no such claim, pod, node or device", []string{"explain"}},
		{exitNotFound, "there is no such node", []string{"audit", "quarantine", "topology"}},
		{exitNotFound, "there is no such node or device", []string{"drain"}},
		{exitNotFound, "there is no such drain", []string{"undrain"}},
		{exitNotFound, "no node has a free device", []string{"test"}},
		{exitNotFound, "the cluster publishes no view of its DeviceClasses", []string{"classes"}},
	}
}

const commonCodes = "Exit codes:\n" +
	"  0  done; with --watch, ended by a signal\n" +
	"  1  the API server could not be reached, or the output could not be written\n" +
	"  2  the command line, the kubeconfig, or a file that it names, is wrong"

// exitCodeHelp returns the exit codes of one command, for its help.
func exitCodeHelp(command string) string {
	var text strings.Builder
	text.WriteString(commonCodes)
	for _, m := range meanings() {
		for _, name := range m.commands {
			if name == command {
				fmt.Fprintf(&text, "\n  %d  %s", m.code, m.text)
			}
		}
	}
	return text.String()
}

// exitCodes returns the exit codes of all commands.
func exitCodes() string {
	var text strings.Builder
	text.WriteString(commonCodes)
	for _, m := range meanings() {
		fmt.Fprintf(&text, "\n  %d  %s: %s", m.code, strings.Join(m.commands, ", "), m.text)
	}
	return text.String()
}
