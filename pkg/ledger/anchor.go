package ledger

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Anchor is a signed checkpoint that was kept off the node.
type Anchor struct {
	Checkpoint
	// Signed is the note; its signatures are not verified yet.
	Signed string
}

// checkpointPattern finds a signed checkpoint in words, its lines as they were or
// joined by [OneLine].
var checkpointPattern = regexp.MustCompile(`([^\s"\\]+)\s+([0-9]{1,19})\s+([A-Za-z0-9+/]{43}=)\s+((?:— [^\s"\\]+ [A-Za-z0-9+/]+={0,2}\s*)+)`)

// signaturePattern finds one signature line.
var signaturePattern = regexp.MustCompile(`— (\S+) ([A-Za-z0-9+/]+={0,2})`)

// FindCheckpoints returns the signed checkpoints in data, each once: notes as
// they are, in a claim's status or in an Event as kubectl prints them (-o json or
// yaml, one object or many), in a log. Whose they are and whether the signatures
// are right is for [Verify].
func FindCheckpoints(data []byte) []Anchor {
	var anchors []Anchor
	add := func(text string) {
		for _, m := range checkpointPattern.FindAllStringSubmatch(text, -1) {
			if a, ok := anchorOf(m); ok && !slices.Contains(anchors, a) {
				anchors = append(anchors, a)
			}
		}
	}
	if !eachString(data, add) {
		add(unescape(string(data)))
	}
	return anchors
}

// anchorOf puts a note back into its lines.
func anchorOf(m []string) (Anchor, bool) {
	text := m[1] + "\n" + m[2] + "\n" + m[3] + "\n"
	c, err := ParseCheckpoint(text)
	if err != nil {
		return Anchor{}, false
	}
	var signed strings.Builder
	signed.WriteString(text + "\n")
	for _, s := range signaturePattern.FindAllString(m[4], -1) {
		signed.WriteString(s + "\n")
	}
	return Anchor{Checkpoint: c, Signed: signed.String()}, true
}

// eachString calls found for every string in JSON values, one after the other,
// and for those that are JSON themselves what they hold. It returns false for
// what is not JSON.
func eachString(data []byte, found func(string)) bool {
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return true
		}
		if err != nil {
			return false
		}
		if text, ok := token.(string); ok {
			found(unescape(text))
		}
	}
}

// unescape undoes the newlines of a note within JSON or YAML text that is not
// decoded.
func unescape(text string) string {
	return strings.NewReplacer(`\n`, "\n", `\u2014`, "—").Replace(text)
}
