package ledger

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// OriginPrefix begins the origin of a node's ledger; the node's name follows.
// The origin is the name of the node's key too.
const OriginPrefix = "kata-vfio.dev/"

// Checkpoint says how long a ledger is and what is in it: the root hash of the
// RFC 6962 tree over its first Size lines. Signed, in the form of
// https://c2sp.org/tlog-checkpoint, it is an anchor: kept off the node, it proves
// later that nothing before it was rewritten.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash
}

// Text returns what is signed: origin, size and root hash, each on its line.
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

// OneLine returns a signed note on one line, for places where a note's lines
// would be lost. [FindCheckpoints] reads both.
func OneLine(signed string) string { return strings.Join(strings.Fields(signed), " ") }

// ParseCheckpoint reads a checkpoint's text, which may have further lines after
// its three (extensions, which are ignored).
func ParseCheckpoint(text string) (Checkpoint, error) {
	lines := strings.SplitN(text, "\n", 4)
	if len(lines) < 4 {
		return Checkpoint{}, errors.New("checkpoint has less than three lines")
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
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

// OpenCheckpoint verifies a signed note and returns its checkpoint. It may have signatures of others (witnesses)
// too.
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
		return Checkpoint{}, fmt.Errorf("checkpoint is of %q, its key is of %q", c.Origin, v.Name())
	}
	return c, nil
}

// openOwn is OpenCheckpoint for a note within a ledger, which has one signature
// and only one form: no byte of it can change unseen.
func openOwn(signed string, v note.Verifier) (Checkpoint, error) {
	c, err := OpenCheckpoint(signed, v)
	if err != nil {
		return Checkpoint{}, err
	}
	rest, ok := strings.CutPrefix(signed, c.Text()+"\n— "+v.Name()+" ")
	if !ok {
		return Checkpoint{}, errors.New("checkpoint is not in the form in which it is written")
	}
	encoded, ok := strings.CutSuffix(rest, "\n")
	if _, err := base64.StdEncoding.Strict().DecodeString(encoded); err != nil || !ok || strings.ContainsAny(encoded, "\r\n ") {
		return Checkpoint{}, errors.New("signature is not in the form in which it is written")
	}
	return c, nil
}

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
