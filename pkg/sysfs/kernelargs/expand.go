package kernelargs

import "strings"

// token is a word of a script as it is written, or an operator between commands.
type token struct {
	text     string
	line     int
	operator bool
}

// tokens splits a script into words and operators. It leaves comments out. Quoted text and substitutions belong to their
// word, over several lines if need be.
func tokens(script string) []token {
	var all []token
	line := 1
	for i := 0; i < len(script); {
		switch c := script[i]; {
		case c == '\\' && strings.HasPrefix(script[i+1:], "\n"):
			line++
			i += 2
		case c == ' ' || c == '\t' || c == '\r':
			i++
		case c == '#':
			// This is a comment, because a # inside a word belongs to the word and does not get here.
			i += len(untilNewline(script[i:]))
		case strings.ContainsRune("\n;&|()<>", rune(c)):
			size := 1
			if strings.HasPrefix(script[i+1:], string(c)) && (c == '&' || c == '|') {
				// && and || make the next command conditional; & and | do not.
				size = 2
			}
			all = append(all, token{script[i : i+size], line, true})
			if c == '\n' {
				line++
			}
			i += size
		default:
			size := wordSize(script[i:])
			all = append(all, token{script[i : i+size], line, false})
			line += strings.Count(script[i:i+size], "\n")
			i += size
		}
	}
	return all
}

func untilNewline(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// wordSize returns the size of the word at the start of a text.
func wordSize(text string) int {
	i := 0
	for i < len(text) {
		size := spanSize(text[i:])
		if size == 1 && strings.ContainsRune(" \t\r\n;&|()<>", rune(text[i])) {
			break
		}
		i += size
	}
	return i
}

// spanSize returns the size of the first unit of a text: a quoted text, a substitution, an escaped
// character, or one character.
func spanSize(text string) int { return nestedSpanSize(text, 0) }

// maxSpans limits how deep spans are nested. Deeper spans count as single characters, because a hostile file must not
// exhaust the stack.
const maxSpans = 100

func nestedSpanSize(text string, depth int) int {
	if depth >= maxSpans {
		return 1
	}
	until := func(from int, end byte) int {
		for i := from; i < len(text); i++ {
			switch {
			case text[i] == end:
				return i + 1
			// In single quotes, even a backslash is literal (POSIX, Shell Command Language, 2.2.2).
			case text[i] == '\\' && end != '\'':
				i++
			case end != '\'' && text[i] == '$' && i+1 < len(text), end == '}' && text[i] == '"':
				i += nestedSpanSize(text[i:], depth+1) - 1
			}
		}
		return len(text)
	}
	switch {
	case text[0] == '\\':
		return min(2, len(text))
	case text[0] == '\'' || text[0] == '"' || text[0] == '`':
		return until(1, text[0])
	case strings.HasPrefix(text, "${"):
		return until(2, '}')
	case strings.HasPrefix(text, "$("):
		return until(2, ')')
	}
	return 1
}

// expand returns the value of a word: without its quotes, with the values of its variables, and without the output of
// commands. line is the number of the word's line.
func (s *Settings) expand(word string, line int) []Line {
	if s.depth >= maxNested {
		return nil
	}
	s.depth++
	e := &expansion{settings: s, line: line}
	e.text(word, false)
	e.flush()
	s.depth--
	s.count(e.parts)
	return bounded(e.parts)
}

// expansion collects the value of a word.
type expansion struct {
	settings *Settings
	line     int
	// from is the number of the line that pending begins in.
	from    int
	pending strings.Builder
	parts   []Line
}

func (e *expansion) text(text string, quoted bool) {
	for i := 0; i < len(text); {
		size := spanSize(text[i:])
		span := text[i : i+size]
		i += size
		switch {
		case quoted && (span[0] == '\'' || span[0] == '"'):
			// In double quotes, a single quote is an ordinary character. So go on right after the quote, and not after
			// the text that it would quote.
			e.put(span[:1])
			i -= size - 1
		case span[0] == '\'':
			e.put(strings.Trim(span, "'"))
		case span[0] == '"':
			e.text(strings.TrimSuffix(span[1:], `"`), true)
		case span[0] == '\\':
			e.escaped(span, quoted)
		case span[0] == '`' || strings.HasPrefix(span, "$("): // what a command prints is unknown
			e.line += strings.Count(span, "\n")
		case strings.HasPrefix(span, "${"):
			e.parameter(strings.TrimSuffix(span[2:], "}"))
		case span == "$" && nameSize(text[i:]) > 0:
			size := nameSize(text[i:])
			e.variable(text[i : i+size])
			i += size
		default:
			e.put(span)
		}
	}
}

func (e *expansion) escaped(span string, quoted bool) {
	switch {
	case len(span) < 2:
	case span[1] == '\n': // the line continues
		e.flush()
		e.line++
	// In double quotes, a backslash before any other character is literal (POSIX, 2.2.3).
	case quoted && !strings.ContainsRune("\"\\$`", rune(span[1])):
		e.put(span)
	default:
		e.put(span[1:])
	}
}

// parameter expands ${NAME} with its optional default or alternative. A pattern that removes part of the value is not
// applied.
func (e *expansion) parameter(text string) {
	size := nameSize(text)
	name, rest := text[:size], strings.TrimPrefix(text[size:], ":")
	if name == "" {
		return
	}
	set := len(e.settings.values[name]) > 0
	switch {
	case rest == "" || rest[0] == '?' || !strings.ContainsRune("-=+", rune(rest[0])):
		e.variable(name)
	case rest[0] == '+' && set:
		e.add(e.settings.expand(rest[1:], e.line))
	case rest[0] == '+':
	case set:
		e.variable(name)
	default:
		value := e.settings.expand(rest[1:], e.line)
		if rest[0] == '=' {
			e.settings.values[name] = value
		}
		e.add(value)
	}
}

func nameSize(text string) int {
	i := 0
	for i < len(text) && isNameByte(text[i]) {
		i++
	}
	return i
}

// variable adds the value of a variable, by the lines that it is from.
func (e *expansion) variable(name string) { e.add(e.settings.values[name]) }

// add adds the parts of a value, unless there are too many anyway.
func (e *expansion) add(parts []Line) {
	e.flush()
	if len(e.parts) < maxParts {
		e.parts = append(e.parts, parts...)
	}
}

func (e *expansion) put(text string) {
	for line := range strings.Lines(text) {
		if e.pending.Len() == 0 {
			e.from = e.line
		}
		e.pending.WriteString(line)
		if strings.HasSuffix(line, "\n") {
			e.flush()
			e.line++
		}
	}
}

// flush ends a part, which is of one line.
func (e *expansion) flush() {
	if e.pending.Len() > 0 {
		e.parts = append(e.parts, Line{e.settings.path, e.from, e.pending.String()})
		e.pending.Reset()
	}
}
