package ledger

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// PseudonymPrefix is the first character of each pseudonym. No name in Kubernetes begins with it.
const PseudonymPrefix = "~"

// PseudonymKeySize is the length of a pseudonyms' key, in bytes.
const PseudonymKeySize = 32

// Pseudonyms replace the names of namespaces, pods and claims in events with a keyed hash: the same name has the same pseudonym.
// Only the owner of the key can compute the pseudonym of a name, so others can't check guesses of names. UIDs are not replaced:
// they relate an event to the cluster's own records.
type Pseudonyms struct{ key []byte }

// NewPseudonyms returns the pseudonyms of a key of [PseudonymKeySize] bytes.
func NewPseudonyms(key []byte) (*Pseudonyms, error) {
	if len(key) != PseudonymKeySize {
		return nil, fmt.Errorf("key of pseudonyms has %d bytes, want %d", len(key), PseudonymKeySize)
	}
	return &Pseudonyms{key: key}, nil
}

// ReadPseudonyms returns the pseudonyms of the key in a ledger's directory. Its
// error matches [fs.ErrNotExist] if the ledger has none.
func ReadPseudonyms(fsys fs.FS) (*Pseudonyms, error) {
	data, err := readFile(fsys, PseudonymsFile, 1024)
	if err != nil {
		return nil, err
	}
	return ParsePseudonyms(string(data))
}

// ParsePseudonyms reads the text form of a key: base64 on one line.
func ParsePseudonyms(text string) (*Pseudonyms, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("key of pseudonyms: %w", err)
	}
	return NewPseudonyms(key)
}

// String returns the text form of the key.
func (p *Pseudonyms) String() string { return base64.StdEncoding.EncodeToString(p.key) }

// Kinds of names. A pod and a claim with the same name have different pseudonyms.
const (
	KindNamespace = "namespace"
	KindClaim     = "claim"
	KindPod       = "pod"
)

// Of returns the pseudonym of a name. It returns the empty name, and a name that is a pseudonym already, unchanged.
func (p *Pseudonyms) Of(kind, name string) string {
	if name == "" || strings.HasPrefix(name, PseudonymPrefix) {
		return name
	}
	h := hmac.New(sha256.New, p.key)
	// The kind is hashed, too: a pod and a claim of one name must not be linked by it.
	h.Write([]byte(kind + "\x00" + name))
	return PseudonymPrefix + base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:15])
}

// refPattern matches a claim in a text, "namespace/name (uid)".
var refPattern = regexp.MustCompile(`\b([a-z0-9][a-z0-9.-]*)/([a-z0-9][a-z0-9.-]*) \(([0-9A-Za-z-]+)\)`)

// Hide replaces the names in an event. It copies values that the event shares with other events.
func (p *Pseudonyms) Hide(e *Event) {
	e.Reason = refPattern.ReplaceAllStringFunc(e.Reason, func(ref string) string {
		m := refPattern.FindStringSubmatch(ref)
		return fmt.Sprintf("%s/%s (%s)", p.Of(KindNamespace, m[1]), p.Of(KindClaim, m[2]), m[3])
	})
	e.Claim = p.hideClaim(e, e.Claim)
	if e.Sanitize != nil { // names the tenant before the stage
		s := *e.Sanitize
		s.After = p.hideClaim(e, s.After)
		e.Sanitize = &s
	}
	pods := make([]Pod, 0, len(e.Pods))
	for _, pod := range e.Pods {
		e.Reason = replaceWord(e.Reason, pod.Name, p.Of(KindPod, pod.Name))
		pods = append(pods, Pod{UID: pod.UID, Name: p.Of(KindPod, pod.Name)})
	}
	if len(pods) > 0 {
		e.Pods = pods
	}
}

// hideClaim returns a claim of an event with its names replaced, and replaces them in the event's reason. Nil stays nil.
func (p *Pseudonyms) hideClaim(e *Event, named *Claim) *Claim {
	if named == nil {
		return nil
	}
	c := *named
	e.Reason = replaceWord(e.Reason, c.Name, p.Of(KindClaim, c.Name))
	e.Reason = replaceWord(e.Reason, c.Namespace, p.Of(KindNamespace, c.Namespace))
	c.Namespace, c.Name = p.Of(KindNamespace, c.Namespace), p.Of(KindClaim, c.Name)
	return &c
}

// replaceWord replaces a name that is a whole word, and not a part of a longer one.
func replaceWord(text, name, by string) string {
	if name == "" || !strings.Contains(text, name) {
		return text
	}
	const edge = `[^0-9A-Za-z~_-]`
	word := regexp.MustCompile(`(^|` + edge + `)` + regexp.QuoteMeta(name) + `($|` + edge + `)`)
	for range 2 { // a match consumes the character before the next name, so the first pass skips that name
		text = word.ReplaceAllString(text, "${1}"+by+"${2}")
	}
	return text
}
