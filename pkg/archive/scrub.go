package archive

import (
	"bytes"
	"regexp"
)

// Scrub returns a text without credentials: values of keys and flags that hold some,
// tokens by their form, private keys, and of a kubeconfig everything. What it leaves
// in their place is a dash. It is for texts that leave the node; a credential in a form that nobody
// knows stays.
func Scrub(text []byte) []byte {
	if bytes.Contains(text, []byte("Config")) && kubeconfig.Match(text) && users.Match(text) {
		return []byte("(a kubeconfig: left out)\n")
	}
	if bytes.Contains(text, []byte("PRIVATE KEY-----")) {
		text = privateKey.ReplaceAll(text, []byte("-"))
	}
	lower := bytes.ToLower(text)
	if len(lower) != len(text) { // some letters are longer in lower case
		return scrubLine(text)
	}
	var out bytes.Buffer
	for at := 0; at < len(text); {
		end := at + len(firstLine(text[at:]))
		line := text[at:end]
		if isSuspect(lower[at:end]) {
			line = scrubLine(line)
		}
		out.Write(line)
		at = end
	}
	return out.Bytes()
}

// firstLine returns the first line of a text, with its end.
func firstLine(text []byte) []byte {
	if i := bytes.IndexByte(text, '\n'); i >= 0 {
		return text[:i+1]
	}
	return text
}

// isSuspect reports whether a line, in lower case, has a word of one of the forms below:
// few have, and to look for the forms themselves takes a hundred times as long.
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
	text = secretValue.ReplaceAllFunc(text, scrubValue)
	text = secretFlag.ReplaceAll(text, []byte("${1}-"))
	text = inURL.ReplaceAll(text, []byte("://-@"))
	return formOfToken.ReplaceAll(text, []byte("-"))
}

// What credentials look like.
var (
	kubeconfig = regexp.MustCompile(`(?m)^\s*"?kind"?:\s*"?Config"?\s*,?\s*$`)
	users      = regexp.MustCompile(`(?m)^\s*"?(users|contexts|clusters)"?:`)
	privateKey = regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)
	// secretValue is a key that ends in a word for a credential, and its value, quoted or not.
	secretValue = regexp.MustCompile(`(?i)([\w.-]*(?:password|passwd|passphrase|secret|token|auth|authorization|api[_-]?key|access[_-]?key|private[_-]?key|key-data|certificate-data)\\?["']?[ \t]*[=:][ \t]*)` +
		`(\\?"(?:[^"\\\n]|\\[^"])*\\?"|'[^'\n]*'|[^\s"',;}\]\x00]+)`)
	secretFlag = regexp.MustCompile(`(?i)(--?[\w-]*(?:password|passwd|secret|token)[ \x00])[^\s\x00-][^\s\x00]*`)
	bearer     = regexp.MustCompile(`(?i)\b(bearer|basic)[ \t]+[\w.~+/=-]{8,}`)
	inURL      = regexp.MustCompile(`://[^\s/:@"']+:[^\s/@"']+@`)
	// formOfToken are JSON Web Tokens, bootstrap tokens of kubeadm, and keys of clouds.
	formOfToken = regexp.MustCompile(`\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|\b[a-z0-9]{6}\.[a-z0-9]{16}\b|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_\w{30,}`)
)

// scrubValue takes the value from a match of secretValue, unless it is a structure, or
// says no more than whether there is one.
func scrubValue(match []byte) []byte {
	parts := secretValue.FindSubmatch(match)
	if parts == nil {
		return []byte("-")
	}
	value := bytes.ToLower(bytes.Trim(parts[2], `\"'`))
	switch string(value) {
	case "", "true", "false", "null", "|", ">", "-":
		return match
	}
	if value[0] == '{' || value[0] == '[' {
		return match
	}
	return append(bytes.Clone(parts[1]), `"-"`...)
}
