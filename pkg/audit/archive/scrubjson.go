package archive

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/encode"
)

var (
	// secretKey is a key whose value is a credential, and secretName a flag before one.
	secretKey  = regexp.MustCompile(`(?i)(password|passwd|passphrase|secret|token|auth|authorization|api[_-]?key|access[_-]?key|private[_-]?key|key-data|certificate-data)$`)
	secretName = regexp.MustCompile(`(?i)^--?[\w-]*(password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key)$`)
)

// ScrubJSON is [Scrub] of JSON, one document or one a line: of each string as the text that it
// is, by its key, and in a list by the flag before it. What was JSON is JSON still.
func ScrubJSON(data []byte) []byte {
	if json.Valid(data) {
		return scrubDocument(data)
	}
	var out, other bytes.Buffer
	for line := range bytes.Lines(data) {
		if !json.Valid(line) {
			other.Write(line)
			continue
		}
		out.Write(Scrub(other.Bytes()))
		other.Reset()
		out.Write(scrubDocument(line))
	}
	out.Write(Scrub(other.Bytes()))
	return out.Bytes()
}

func scrubDocument(data []byte) []byte {
	return encode.RewriteStrings(data, func(s *encode.String) string {
		switch {
		case secretKey.MatchString(s.Key) && !isAnonymous(s.Text), secretName.MatchString(s.Before) && !strings.HasPrefix(s.Text, "-"):
			return "-"
		}
		return string(Scrub([]byte(s.Text)))
	}, func(string) {})
}
