package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// part is the text of one document, and the number of its first line.
type part struct {
	text []byte
	line int
}

const divider = "---"

// split splits a file into its documents, as kubectl does.
func split(text []byte) (parts []part) {
	current := part{line: 1}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if isDivider(line) {
			parts = append(parts, current.stream()...)
			current = part{line: number + 1}
			continue
		}
		current.text = append(current.text, line...)
	}
	parts = append(parts, current.stream()...)
	return slices.DeleteFunc(parts, func(p part) bool { return len(bytes.TrimSpace(p.text)) == 0 })
}

// isDivider reports whether a line ends a document: a comment may follow the dashes.
func isDivider(line []byte) bool {
	rest, dashes := bytes.CutPrefix(line, []byte(divider))
	rest = bytes.TrimSpace(rest)
	return dashes && (len(rest) == 0 || rest[0] == '#')
}

// stream splits a part at the ends of JSON objects, which `jq -c` prints without dividers. Another text stays whole.
func (p part) stream() (parts []part) {
	if !bytes.HasPrefix(bytes.TrimSpace(p.text), []byte("{")) {
		return []part{p}
	}
	decoder := json.NewDecoder(bytes.NewReader(p.text))
	for at, line := 0, p.line; ; {
		var value json.RawMessage
		switch err := decoder.Decode(&value); {
		case errors.Is(err, io.EOF):
			return parts
		case err != nil:
			return []part{p}
		}
		end := int(decoder.InputOffset())
		text := bytes.TrimLeft(p.text[at:end], " \t\r\n")
		line += bytes.Count(p.text[at:end-len(text)], []byte("\n"))
		parts = append(parts, part{text, line})
		line += bytes.Count(text, []byte("\n"))
		at = end
	}
}

// node reads the part as YAML. It is nil if the text has only comments. The readers of YAML drop what follows the first document, so it is
// a problem here.
func (p part) node() (*yaml.Node, *v1alpha1.Problem) {
	number := p.line
	for line := range bytes.Lines(p.text) {
		if bytes.HasPrefix(line, []byte(divider)) {
			return nil, &v1alpha1.Problem{Line: number, Text: "no YAML: only a comment may follow --- on its line, and the document begins on the next one"}
		}
		number++
	}
	var first, second yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(p.text))
	if err := decoder.Decode(&first); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, malformed(err, p.line)
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return nil, p.excess(err)
	}
	if len(first.Content) == 0 || first.Content[0].Tag == "!!null" {
		return nil, nil
	}
	return first.Content[0], nil
}

// excess is the problem of a part with text after its document. The reader counts the lines of this error from 0.
func (p part) excess(err error) *v1alpha1.Problem {
	line := p.line
	if found := lineOfError.FindStringSubmatch(fmt.Sprint(err)); found != nil {
		n, _ := strconv.Atoi(found[1]) // digits
		line += n
	}
	return &v1alpha1.Problem{Line: line, Text: "no YAML: more follows after the end of the document; begin each document with a line of ---"}
}
