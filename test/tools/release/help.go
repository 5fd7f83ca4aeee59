package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// help is what a command says of itself when it is asked with --help, as cobra words it.
type help struct {
	words    []string // of the command line, without the program: none for the program itself
	short    string   // one line; of a program its first sentence
	text     string
	usage    []string
	examples string
	flags    string // a flag in a line or more
	global   string // the same, of those that other commands have, too
	commands []help
}

// section matches the title of one of cobra's sections.
var section = regexp.MustCompile(`^[A-Z][A-Za-z ]*:$`)

// listed matches a command in its parent's list.
var listed = regexp.MustCompile(`^  (\S+) +(.*)$`)

// readHelp asks the program in a file for its help and for that of all its commands.
func readHelp(ctx context.Context, file string, words ...string) (help, error) {
	said, err := output(ctx, file, append(slices.Clone(words), "--help")...)
	if err != nil {
		return help{}, err
	}
	h, err := parseHelp(string(said))
	if err != nil {
		return help{}, fmt.Errorf("its help for %q: %w", words, err)
	}
	h.words = words
	for i := range h.commands {
		c := &h.commands[i]
		short := c.short
		if *c, err = readHelp(ctx, file, append(slices.Clone(words), c.words...)...); err != nil {
			return help{}, err
		}
		c.short = short
	}
	return h, nil
}

// parseHelp takes a command's help apart. Of its commands it tells word and short text.
func parseHelp(said string) (help, error) {
	var h help
	text, rest, found := strings.Cut("\n"+said, "\nUsage:\n")
	if !found {
		return h, fmt.Errorf("it has no usage:\n%s", said)
	}
	h.text = strings.TrimSpace(text)
	h.short = firstSentence(h.text)
	for title, body := range sections("Usage:\n" + rest) {
		switch {
		case title == "Usage:":
			for line := range strings.Lines(body) {
				h.usage = append(h.usage, strings.TrimSpace(line))
			}
		case title == "Examples:":
			h.examples = body
		case title == "Flags:":
			h.flags = body
		case title == "Global Flags:":
			h.global = body
		case strings.HasSuffix(title, "Commands:"):
			h.commands = append(h.commands, parseCommands(body)...)
		}
	}
	return h, nil
}

// sections yields what follows each title, until the next one or until the text that stands below all sections.
func sections(text string) func(yield func(title, body string) bool) {
	return func(yield func(title, body string) bool) {
		lines := strings.Split(text, "\n")
		for i := 0; i < len(lines); i++ {
			if !section.MatchString(lines[i]) {
				continue
			}
			title, start := lines[i], i+1
			for i+1 < len(lines) && (lines[i+1] == "" || strings.HasPrefix(lines[i+1], " ")) {
				i++
			}
			if !yield(title, strings.Trim(strings.Join(lines[start:i+1], "\n"), "\n")) {
				return
			}
		}
	}
}

// parseCommands leaves out those that cobra gives to every program.
func parseCommands(body string) (commands []help) {
	for line := range strings.Lines(body) {
		m := listed.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil || m[2] == "Help about any command" || strings.HasPrefix(m[2], "Generate the autocompletion script") {
			continue
		}
		commands = append(commands, help{words: []string{m[1]}, short: m[2]})
	}
	return commands
}

func firstSentence(text string) string {
	paragraph, _, _ := strings.Cut(text, "\n\n")
	words := strings.Join(strings.Fields(paragraph), " ")
	sentence, _, _ := strings.Cut(words, ". ")
	return strings.TrimRight(sentence, ".:")
}
