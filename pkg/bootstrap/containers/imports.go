package containers

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// addImport adds a pattern to the imports of a containerd configuration and keeps every other byte: comments, order,
// line endings, a last line without a newline. It fails, naming the file, for invalid TOML, and if anything else in the
// result would differ from the text.
func addImport(name, text, pattern string) (string, error) {
	// ParseTable has limits, which the parser below does not have.
	if _, err := facts.ParseTable(facts.Fact{Path: name, Value: text}); err != nil {
		return "", err
	}
	at, err := findPlace(text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	edited := text[:at.offset] + at.insertion(pattern) + text[at.offset:]
	if err := differByImport(text, edited, pattern); err != nil {
		return "", fmt.Errorf("%s: add %q to its imports: %w", name, pattern, err)
	}
	return edited, nil
}

// place is the position of an import in a text.
type place struct {
	offset int
	// before and after are the text around the inserted pattern.
	before, after string
}

func (p place) insertion(pattern string) string {
	return p.before + fmt.Sprintf("%q", pattern) + p.after
}

// findPlace finds the place: in the existing list, or a new line after the version, or before the first expression.
func findPlace(text string) (place, error) {
	var p unstable.Parser
	p.Reset([]byte(text))
	first, version := len(text), -1
	for p.NextExpression() {
		e := p.Expression()
		start := findStart(e)
		first = min(first, start)
		if e.Kind != unstable.KeyValue {
			break // the rest belongs to that table
		}
		switch joinKey(e) {
		case "imports":
			return inList(text, e)
		case "version":
			version = end(e.Raw)
		}
	}
	if err := p.Error(); err != nil {
		return place{}, err
	}
	return ownLine(text, first, version), nil
}

// joinKey returns a key without dots, or "" for any other key.
func joinKey(e *unstable.Node) string {
	it := e.Key()
	if !it.Next() || !it.IsLast() {
		return ""
	}
	return string(it.Node().Data)
}

// findStart returns the offset of an expression's key, which is on its first line.
func findStart(e *unstable.Node) int {
	it := e.Key()
	it.Next()
	return int(it.Node().Raw.Offset)
}

func end(r unstable.Range) int { return int(r.Offset + r.Length) }

// inList returns the position after the last item of a list of strings, before a comma or comment that follows on its
// line.
func inList(text string, e *unstable.Node) (place, error) {
	list := e.Value()
	if list.Kind != unstable.Array {
		return place{}, errors.New("imports is not a list")
	}
	last := -1
	for it := list.Children(); it.Next(); {
		if it.Node().Kind != unstable.String {
			return place{}, errors.New("imports has an item that is not a string")
		}
		last = end(it.Node().Raw)
	}
	if last >= 0 {
		return place{offset: last, before: ", "}, nil
	}
	// An empty list has no item to insert after. Its bracket is the first one after the key.
	key := e.Key()
	key.Next()
	from := end(key.Node().Raw)
	return place{offset: from + strings.IndexByte(text[from:], '[') + 1}, nil
}

// ownLine returns the place of a new line: after the line with the version, or before the line of the first expression.
func ownLine(text string, first, version int) place {
	eol := "\n"
	if i := strings.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		eol = "\r\n"
	}
	if version < 0 && first < len(text) {
		// After a table's header, the line would belong to that table.
		return place{offset: strings.LastIndexByte(text[:first], '\n') + 1, before: "imports = [", after: "]" + eol}
	}
	at := len(text)
	if version >= 0 {
		if i := strings.IndexByte(text[version:], '\n'); i >= 0 {
			at = version + i + 1
		}
	}
	if at == 0 || text[at-1] == '\n' {
		return place{offset: at, before: "imports = [", after: "]" + eol}
	}
	// The file's last line has no line break, so the new last line gets none either.
	return place{offset: at, before: eol + "imports = [", after: "]"}
}

// differByImport fails unless the texts differ only by one more import.
func differByImport(before, after, pattern string) error {
	var was, is map[string]any
	if err := toml.Unmarshal([]byte(before), &was); err != nil {
		return err
	}
	if err := toml.Unmarshal([]byte(after), &is); err != nil {
		return err
	}
	had, _ := was["imports"].([]any)
	if want := append(slices.Clone(had), pattern); !reflect.DeepEqual(want, is["imports"]) {
		return fmt.Errorf("it would import %v", is["imports"])
	}
	delete(was, "imports")
	delete(is, "imports")
	// A text without settings leaves the map nil, which DeepEqual distinguishes from an empty one.
	if len(was)+len(is) > 0 && !reflect.DeepEqual(was, is) {
		return errors.New("it would change other settings too")
	}
	return nil
}

// imported returns the main file, with an import of the drop-in unless it is already imported, directly or indirectly.
func (c *containerd) imported(dropIn []byte) (string, bool) {
	for _, file := range c.load(c.text, dropIn).Files {
		if file.Path == c.at.dropIn {
			return c.text, c.startedWith()
		}
	}
	main, err := addImport(c.at.main, c.text, c.pattern())
	if err != nil {
		c.wants.refuse(rule.ImportMissing, c.at.main, "The import can't be added: "+err.Error(), "Add it yourself: imports = [\""+c.pattern()+"\"]")
		return "", false
	}
	return main, c.startedWith()
}

// startedWith refuses a main file that containerd is not started with yet, unless it imports the vendor's file that containerd
// is started with now.
func (c *containerd) startedWith() bool {
	if c.at.vendor == "" {
		return true
	}
	for _, file := range c.load(c.text, nil).Files {
		if file.Path == c.at.vendor {
			return true
		}
	}
	c.wants.refuse(rule.ImportMissing, c.at.main, fmt.Sprintf("%s exists, but containerd is started with %s, which the file does not import.", c.at.main, c.at.vendor),
		"Remove it, or add imports = [\""+c.at.vendor+"\"] to it, or start containerd with it.")
	return false
}

// pattern returns the import: the directory of drop-ins, or only bootstrap's file if the directory has other files,
// which are not imported so far.
func (c *containerd) pattern() string {
	dir := path.Dir(c.at.dropIn)
	names, _ := c.node.list(dir)
	for _, name := range names {
		if name != dropInName && path.Ext(name) == ".toml" {
			// A pattern, because containerd does not start if a file that is imported by its full name is missing
			// (resolveImports in cmd/containerd/server/config/config.go), as after a revert by hand.
			return path.Join(dir, "kata-gpu*.toml")
		}
	}
	return path.Join(dir, "*.toml")
}
