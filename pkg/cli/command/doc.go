// Package command is what the project's programs have in common on the command
// line: how they start and end, how a wrong command line is told, and the flags
// and subcommands that all of them have. It knows nothing of what they do.
package command
