package bundle

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
)

// Mask replaces tenants' names: wherever one stands as a word, whole or before or
// after a dash or dot, a pseudonym stands in its place, the same for the same name
// within one bundle. Nobody can tell the name from it, nor by trying names: its key is
// forgotten with the mask. A name that is also a word of the node's, as dev or gpu, is
// replaced in fields only (see [Mask.Reserve]). A nil Mask replaces nothing.
type Mask struct {
	key      []byte
	names    map[string]string
	reserved map[string]bool
}

// NewMask returns a mask without names.
func NewMask() *Mask {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails (crypto/rand)
	return &Mask{key: key, names: map[string]string{}, reserved: map[string]bool{}}
}

// common are names that every cluster has, and which are no tenant's.
func common(name string) bool {
	return slices.Contains([]string{"", "default", "kube-system", "kube-public", "kube-node-lease"}, name)
}

// Hide adds names that are to be replaced.
func (m *Mask) Hide(names ...string) {
	if m == nil {
		return
	}
	for _, name := range names {
		if common(name) || m.names[name] != "" {
			continue
		}
		mac := hmac.New(sha256.New, m.key)
		mac.Write([]byte(name))
		m.names[name] = "name-" + hex.EncodeToString(mac.Sum(nil)[:6])
		if strings.Trim(name, "0123456789.-") == "" { // numbers are everywhere
			m.reserved[name] = true
		}
	}
}

// longestName is what a name in Kubernetes may have.
const longestName = 253

// Apply returns data with the names replaced.
func (m *Mask) Apply(data []byte) []byte {
	if m == nil || len(m.names) == 0 {
		return data
	}
	var out bytes.Buffer
	kept := 0
	for i := 0; i < len(data); i++ {
		if !isWord(data[i]) || !begins(data, i) {
			continue
		}
		n, pseudonym := m.at(data[i:])
		if n == 0 {
			continue
		}
		out.Write(data[kept:i])
		out.WriteString(pseudonym)
		kept = i + n
		i = kept - 1
	}
	if kept == 0 {
		return data
	}
	out.Write(data[kept:])
	return out.Bytes()
}

func (m *Mask) text(s string) string { return string(m.Apply([]byte(s))) }

// at returns the length of the longest name that data begins with, and ends with as a
// word, and its pseudonym.
func (m *Mask) at(data []byte) (n int, pseudonym string) {
	for n = runOf(data); n > 0; n-- {
		if n < len(data) && isWord(data[n]) || !isWord(data[n-1]) {
			continue
		}
		if pseudonym := m.names[string(data[:n])]; pseudonym != "" && !m.reserved[string(data[:n])] {
			return n, pseudonym
		}
	}
	return 0, ""
}

// runOf returns how far a name may reach that begins with data.
func runOf(data []byte) int {
	n := 0
	for n < min(len(data), longestName) && (isWord(data[n]) || data[n] == '-' || data[n] == '.') {
		n++
	}
	return n
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// begins reports whether a word may begin at i: behind anything but a word, or
// behind an escape of JSON or of a URL, which ends in a letter.
func begins(data []byte, i int) bool {
	if i == 0 || !isWord(data[i-1]) {
		return true
	}
	behind := func(n int, c byte) bool { return i >= n && data[i-n] == c }
	return behind(2, '\\') || behind(3, '%') || behind(6, '\\') && data[i-5] == 'u'
}
