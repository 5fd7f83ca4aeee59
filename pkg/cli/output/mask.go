package output

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Mask replaces tenants' names: wherever one is a word, or a part of one before or after a dash or dot, a pseudonym
// replaces it, which is the same for the same name within one bundle. Nobody can derive the name from it, even by trying
// names, because its key is dropped with the mask. A name that is also a word of the node's, such as dev or gpu, is
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

// common are names that every cluster has, and which name no tenant.
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
		// 48 bits are short enough to read, and keep the names of a cluster apart.
		m.names[name] = "name-" + hex.EncodeToString(mac.Sum(nil)[:6])
		if strings.Trim(name, "0123456789.-") == "" { // numbers are everywhere
			m.reserved[name] = true
		}
	}
}

// longestName is the length of the longest name in Kubernetes.
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

// at returns the length of the longest name that data begins with, and ends with as a
// word, and its pseudonym.
func (m *Mask) at(data []byte) (n int, pseudonym string) {
	// The longest name first: team-a and team-a-train can both be names.
	for n = measureRun(data); n > 0; n-- {
		if n < len(data) && isWord(data[n]) || !isWord(data[n-1]) {
			continue
		}
		if pseudonym := m.names[string(data[:n])]; pseudonym != "" && !m.reserved[string(data[:n])] {
			return n, pseudonym
		}
	}
	return 0, ""
}

// measureRun returns the largest length of a name at the start of data.
func measureRun(data []byte) int {
	n := 0
	for n < min(len(data), longestName) && (isWord(data[n]) || data[n] == '-' || data[n] == '.') {
		n++
	}
	return n
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// begins reports whether a word may begin at i: after anything but a word, or after an escape of JSON or of a URL, which
// ends in a letter.
func begins(data []byte, i int) bool {
	if i == 0 || !isWord(data[i-1]) {
		return true
	}
	behind := func(n int, c byte) bool { return i >= n && data[i-n] == c }
	return behind(2, '\\') || behind(3, '%') || behind(6, '\\') && data[i-5] == 'u'
}

// Fields returns JSON documents, one or a line each, with the names replaced in the fields that hold names of
// namespaces, claims and pods, those included that [Mask.Reserve] keeps elsewhere. Other data stays as it is.
func (m *Mask) Fields(data []byte) []byte {
	if m == nil || len(m.reserved) == 0 {
		return data
	}
	if json.Valid(data) {
		return m.fields(data)
	}
	var out bytes.Buffer
	for line := range bytes.Lines(data) {
		if json.Valid(line) {
			line = m.fields(line)
		}
		out.Write(line)
	}
	return out.Bytes()
}

func (m *Mask) fields(data []byte) []byte {
	return RewriteStrings(data, m.field, func(string) {})
}

// field returns the replacement of a string.
func (m *Mask) field(s *String) string {
	pseudonym := func(name string) string {
		if p := m.names[name]; p != "" {
			return p
		}
		return name
	}
	switch s.Key {
	case "namespace", "tenants", "pod":
		return pseudonym(s.Text)
	case "name":
		if slices.Contains([]string{"claim", "claims", "after", "pods", "metadata", "ownerReferences", "reservedFor", "involvedObject"}, s.Parent) {
			return pseudonym(s.Text)
		}
	case "claim", "object": // "team-a/train", "claim team-a/train"
		kind, name, _ := cutLast(s.Text, " ")
		parts := strings.Split(name, "/")
		for i := range parts {
			parts[i] = pseudonym(parts[i])
		}
		return kind + strings.Join(parts, "/")
	}
	if strings.HasPrefix(s.Text, "{") && json.Valid([]byte(s.Text)) { // a file's content, as in status.json
		return string(m.fields([]byte(s.Text)))
	}
	return s.Text
}

// cutLast cuts after the last separator.
func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator) + len(separator)
	if i < len(separator) {
		return "", text, false
	}
	return text[:i], text[i:], true
}

// ReserveKeys reserves the keys of a document, or of those in its lines, except for paths, which are keys of
// lists.
func (m *Mask) ReserveKeys(data []byte) {
	RewriteStrings(data, func(s *String) string { return s.Text }, func(key string) {
		if !strings.Contains(key, "/") {
			m.Reserve([]byte(key))
		}
	})
}

// vocabulary has words that describe the node and its checks. If a tenant uses one of them as a name, on purpose
// or not, it can't be replaced everywhere.
const vocabulary = `
	kata-vfio.dev gpu.kata-vfio.dev vf.kata-vfio.dev pf.kata-vfio.dev resource.kata-vfio.dev/v1alpha1 vfio.kata-vfio.dev
	gpu-vf.kata-vfio.dev gpu-slice.kata-vfio.dev nvme.kata-vfio.dev accelerator.kata-vfio.dev accelerator-vf.kata-vfio.dev
	kata-vfio-plugin kata-vfio-audit kata-vfio-bootstrap kata-vfio-guestnet kata-vfio-system kata-gpu kata-containers
	var/lib/kata-vfio/journal/unclean var/lib/kata-vfio/journal/drained var/lib/kata-vfio/journal/unsanitized var/lib/kata-vfio/journal/sanitized
	var/lib/kata-vfio/ledger run/kata-vfio etc/kata-vfio
	json toml yaml conf jsonl ndjson txt log tgz pub
	true false null none yes no on off auto always never default enabled disabled required optional
	pass fail unknown error waived not-applicable critical high medium low info
	prepare unprepare prepared preparing unpreparing quarantined quarantine ready isolated reset refused ok failed claim pod node device
	gpu vf pf nic pair bound ondemand vfio-pci vfio-user vfio-ap vfio-ccw iommufd cdev legacy group
	flr bus pm af-level slot device-specific acpi d3cold
	containerd crio cri-o cri kubelet qemu qemu-system-x86 qemu-system-aarch64 cloud-hypervisor firecracker dragonball virtiofsd runc
	io.containerd.kata.v2 io.containerd.runc.v2 io.containerd.kata-qemu.v2 io.containerd.grpc.v1.cri io.containerd.nri.v1.nri
	kata qemu-nvidia-gpu root-port switch-port bridge-port no-port vfio guest-kernel cold-plug hot-plug nri cdi plugins runtimes options
	webhook x509 anonymous alwaysallow rbac authentication authorization
	iommu intel amd smmu dmar acs ats pri pasid vfio-iommu-type1 kubepods kubepods.slice system.slice cgroup
	proc sys dev etc usr lib boot run var opt bin sbin share root home tmp mnt
`

// ReserveVocabulary reserves the words that are the same for every node and cluster.
func (m *Mask) ReserveVocabulary() { m.Reserve([]byte(vocabulary)) }

// Reserve excludes the words of a text that can't name tenants from the mask: if a tenant's name is a word of it,
// replacing the word would change the text's meaning. Only [Mask.Fields] replaces these names. Hide all names before.
func (m *Mask) Reserve(text []byte) {
	if m == nil || len(m.names) == 0 {
		return
	}
	for i := range text {
		if !isWord(text[i]) || !begins(text, i) {
			continue
		}
		for n := measureRun(text[i:]); n > 0; n-- {
			if end := i + n; isWord(text[end-1]) && (end == len(text) || !isWord(text[end])) && m.names[string(text[i:end])] != "" {
				m.reserved[string(text[i:end])] = true
			}
		}
	}
}

// Reserved counts the names that are replaced in fields only.
func (m *Mask) Reserved() int {
	if m == nil {
		return 0
	}
	return len(m.reserved)
}

// subject matches the tenant's object in a line of kata-vfio's own logs, in both forms that the plugin writes.
var subject = regexp.MustCompile(`\b(?:claim|pod)"?[=:]\s?"?([a-z0-9][a-z0-9.-]*)/([a-z0-9][a-z0-9.-]*)`)

// HideLogged adds the names in a log of kata-vfio's own.
func (m *Mask) HideLogged(log []byte) {
	if m == nil {
		return
	}
	for _, names := range subject.FindAllSubmatch(log, -1) {
		m.Hide(string(names[1]), string(names[2]))
	}
}
