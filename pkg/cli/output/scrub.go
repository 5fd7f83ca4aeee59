package output

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// Scrub returns a text without credentials: values of keys and flags that hold some, tokens by their form, private keys,
// and the whole content of a kubeconfig. It replaces them with a dash. Use it for texts that leave the node. It does not
// find credentials of an unknown form.
func Scrub(text []byte) []byte {
	if bytes.Contains(text, []byte("Config")) && kubeconfig.Match(text) && users.Match(text) {
		return []byte("(a kubeconfig: left out)\n")
	}
	if bytes.Contains(text, []byte("PRIVATE KEY-----")) {
		text = privateKey.ReplaceAll(text, []byte("-"))
	}
	lower := bytes.ToLower(text)
	var out bytes.Buffer
	for at := 0; at < len(text); {
		line := firstLine(text[at:])
		end := at + len(line)
		if len(lower) == len(text) && !isSuspect(lower[at:end]) { // some letters are longer in lower case
			out.Write(line)
			at = end
			continue
		}
		more := linesOfValue(line, text[end:])
		if more > 0 {
			line = severalLines.ReplaceAll(line, []byte(`${1}"-"${3}`))
		}
		out.Write(scrubLine(line))
		at = end + more
	}
	return out.Bytes()
}

// linesOfValue returns the length of the credential that begins in a line: a YAML block that is indented more than its
// key, or a TOML string of several lines.
func linesOfValue(line, rest []byte) int {
	begin := severalLines.FindSubmatch(line)
	if begin == nil {
		return 0
	}
	if quotes := begin[2][:min(3, len(begin[2]))]; quotes[0] == '"' || quotes[0] == '\'' {
		i := bytes.Index(rest, quotes)
		if i < 0 {
			return len(rest)
		}
		return i + len(firstLine(rest[i:]))
	}
	n := 0
	for n < len(rest) {
		next := firstLine(rest[n:])
		if len(bytes.TrimSpace(next)) > 0 && indentation(next) <= indentation(line) {
			break
		}
		n += len(next)
	}
	return n
}

func indentation(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " \t-")) }

// firstLine returns the first line of a text, with its end.
func firstLine(text []byte) []byte {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return text[:i+1]
	}
	return text
}

// isSuspect reports whether a line, in lower case, has a word of one of the forms below. Few lines do, and matching the
// forms themselves takes a hundred times as long.
func isSuspect(line []byte) bool {
	for _, word := range []string{"pass", "secret", "token", "auth", "key", "certificate-data", "bearer", "basic", "://", "eyj", "akia", "gh"} {
		if bytes.Contains(line, []byte(word)) {
			return true
		}
	}
	return hasBootstrapToken(line)
}

// hasBootstrapToken looks for six and sixteen letters and digits around a dot.
func hasBootstrapToken(line []byte) bool {
	for at := 0; ; at++ {
		i := bytes.IndexByte(line[at:], '.')
		if i < 0 {
			return false
		}
		if at += i; at >= 6 && isPlain(line[at-6:at]) && len(line) >= at+17 && isPlain(line[at+1:at+17]) {
			return true
		}
	}
}

func isPlain(word []byte) bool {
	for _, c := range word {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return true
}

func scrubLine(text []byte) []byte {
	text = bearer.ReplaceAll(text, []byte("${1} -"))
	text = scrubValues(text)
	text = secretFlag.ReplaceAll(text, []byte("${1}-"))
	text = inURL.ReplaceAll(text, []byte("://-@"))
	return formOfToken.ReplaceAll(text, []byte("-"))
}

// Forms of credentials.
var (
	kubeconfig = regexp.MustCompile(`(?m)^\s*"?kind"?:\s*"?Config"?\s*,?\s*$`)
	users      = regexp.MustCompile(`(?m)^\s*"?(users|contexts|clusters)"?:`)
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
	// severalLines is a line with such a key whose value begins there and ends on another.
	severalLines = regexp.MustCompile(`(?i)^(.*(?:password|passwd|passphrase|secret|token|auth|authorization|api[_-]?key|(?:access|secret)[_-]?key|private[_-]?key|key-data|certificate-data)["']?[ \t]*[:=][ \t]*)([|>][-+0-9]*[ \t]*(?:#.*)?|"""(?:[^"\r\n]|"[^"\r\n])*|'''(?:[^'\r\n]|'[^'\r\n])*)(\r?\n)?$`)
	secretFlag   = regexp.MustCompile(`(?i)(--?[\w-]*(?:password|passwd|secret|token|(?:access|secret)-key)[ \x00])[^\s\x00-][^\s\x00]*`)
	bearer       = regexp.MustCompile(`(?i)\b(bearer|basic)[ \t]+[\w.~+/=-]{8,}`)
	inURL        = regexp.MustCompile(`://[^\s/:@"']+:[^\s/@"']+@`)
	// formOfToken are JSON Web Tokens, bootstrap tokens of kubeadm, and keys of clouds.
	formOfToken = regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|\b[a-z0-9]{6}\.[a-z0-9]{16}\b|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_\w{30,}`)
)

var (
	// secretKey is a key whose value is a credential, and secretName a flag before one.
	secretKey  = regexp.MustCompile(`(?i)(password|passwd|passphrase|secret|token|auth|authorization|api[_-]?key|(?:access|secret)[_-]?key|private[_-]?key|key-data|certificate-data)$`)
	secretName = regexp.MustCompile(`(?i)^--?[\w-]*(password|passwd|passphrase|secret|token|api[_-]?key|(?:access|secret)[_-]?key)$`)
)

// ScrubJSON is [Scrub] for JSON, one document or one a line. It scrubs each string as a text, by its key, and in a list
// by the flag before it. The result is valid JSON.
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
	return RewriteStrings(data, func(s *String) string {
		text, isDocument := s.Text, isObject(s.Text)
		switch {
		case secretKey.MatchString(s.Key) && !isAnonymous(text) && !isDocument, secretName.MatchString(s.Before) && !strings.HasPrefix(text, "-"):
			return "-"
		case isDocument:
			text = string(ScrubJSON([]byte(text)))
		}
		return string(Scrub([]byte(text)))
	}, func(string) {})
}
