package ledger

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// OriginPrefix and the node's name are the origin of a node's ledger, which is also the name of the node's key.
const OriginPrefix = "kata-vfio.dev/"

// Checkpoint is the size of a ledger and the root hash of the RFC 6962 tree over its first Size events. In signed form
// (https://c2sp.org/tlog-checkpoint) and kept off the node, it is an anchor: it proves later that those events were not rewritten.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash
}

// Text returns the text that is signed: origin, size and root hash, a line each.
func (c Checkpoint) Text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, c.Root)
}

// Sign returns the checkpoint as a signed note.
func (c Checkpoint) Sign(s note.Signer) (string, error) {
	signed, err := note.Sign(&note.Note{Text: c.Text()}, s)
	if err != nil {
		return "", fmt.Errorf("sign checkpoint of size %d: %w", c.Size, err)
	}
	return string(signed), nil
}

// OneLine returns a signed note on one line, for places that don't keep line breaks. [FindCheckpoints] reads both forms.
func OneLine(signed string) string { return strings.Join(strings.Fields(signed), " ") }

// ParseCheckpoint reads a checkpoint's text. It ignores extensions: lines after the first three.
func ParseCheckpoint(text string) (Checkpoint, error) {
	lines := strings.SplitN(text, "\n", 4)
	if len(lines) < 4 {
		return Checkpoint{}, errors.New("checkpoint has fewer than three lines")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	// ParseInt also reads "+1" and "01". The format has no leading zeros (c2sp.org/tlog-checkpoint).
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] || lines[0] == "" {
		return Checkpoint{}, errors.New("checkpoint has no origin or size")
	}
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if err != nil || len(root) != tlog.HashSize {
		return Checkpoint{}, errors.New("checkpoint has no root hash")
	}
	return Checkpoint{Origin: lines[0], Size: size, Root: tlog.Hash(root)}, nil
}

// errSignature says that a note is not signed by the expected key.
var errSignature = errors.New("its signature is not by the ledger's key")

// OpenCheckpoint verifies a signed note and returns its checkpoint. The note may have other signatures, of witnesses.
func OpenCheckpoint(signed string, v note.Verifier) (Checkpoint, error) {
	n, err := note.Open([]byte(signed), note.VerifierList(v))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w (%w)", errSignature, err)
	}
	c, err := ParseCheckpoint(n.Text)
	if err != nil {
		return Checkpoint{}, err
	}
	if c.Origin != v.Name() {
		return Checkpoint{}, fmt.Errorf("checkpoint belongs to %q, its key to %q", c.Origin, v.Name())
	}
	return c, nil
}

// openOwn is [OpenCheckpoint] for a note within a ledger, which has one signature and one canonical form, so that no byte can be
// changed unnoticed.
func openOwn(signed string, v note.Verifier) (Checkpoint, error) {
	c, err := OpenCheckpoint(signed, v)
	if err != nil {
		return Checkpoint{}, err
	}
	rest, ok := strings.CutPrefix(signed, c.Text()+"\n— "+v.Name()+" ")
	if !ok {
		return Checkpoint{}, errors.New("checkpoint is not in canonical form")
	}
	encoded, ok := strings.CutSuffix(rest, "\n")
	// Even the strict decoder skips CR and LF, so that two texts could have the same signature.
	if _, err := base64.StdEncoding.Strict().DecodeString(encoded); err != nil || !ok || strings.ContainsAny(encoded, "\r\n ") {
		return Checkpoint{}, errors.New("signature is not in canonical form")
	}
	return c, nil
}

// Anchor is a signed checkpoint that was kept off the node.
type Anchor struct {
	Checkpoint
	// Signed is the note; its signatures are not verified yet.
	Signed string
	// From is where it was found: an object or a file; empty if the caller knows.
	From string
	// Foreign is set if others than the node and the admin can write where the anchor was found. A foreign anchor is a proof only if
	// the ledger's key signed it.
	Foreign bool
}

// checkpointPattern matches a signed checkpoint in a text, on several lines or on one ([OneLine]).
var checkpointPattern = regexp.MustCompile(`([^\s"\\]+)\s+([0-9]{1,19})\s+([A-Za-z0-9+/]{43}=)\s+((?:— [^\s"\\]+ [A-Za-z0-9+/]+={0,2}\s*)+)`)

// signaturePattern matches one signature line.
var signaturePattern = regexp.MustCompile(`— (\S+) ([A-Za-z0-9+/]+={0,2})`)

// FindCheckpoints returns the signed checkpoints in data, without duplicates: notes, claims or Events as kubectl prints them (-o
// json or yaml), or a log. [Verify] checks their origin and their signatures. [FindAnchors] also reports whether others than the
// node and the admin can have written them.
func FindCheckpoints(data []byte) []Anchor {
	var anchors []Anchor
	known := map[string]bool{} // by the note, which has the checkpoint
	add := func(text string) {
		for _, m := range checkpointPattern.FindAllStringSubmatch(text, -1) {
			if a, ok := parseAnchor(m); ok && !known[a.Signed] {
				known[a.Signed] = true
				anchors = append(anchors, a)
			}
		}
	}
	if !eachString(data, add) {
		add(unescape(string(data)))
	}
	return anchors
}

// parseAnchor restores the lines of a note.
func parseAnchor(m []string) (Anchor, bool) {
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

// eachString calls found for each string in a sequence of JSON values. It returns false if data is not JSON.
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

// unescape decodes the line breaks and dashes of a note within JSON or YAML text.
func unescape(text string) string {
	return strings.NewReplacer(`\n`, "\n", `\u2014`, "—").Replace(text)
}
