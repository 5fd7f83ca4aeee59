package output

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

// bundleFormat is the version of the bundles that this package writes.
const bundleFormat = 1

// BundleManifestName is the first file of a bundle.
const BundleManifestName = "manifest.json"

// maxFiles and maxBundle limit the files besides the node's archive, so that full logs do not fill a disk.
const (
	maxFiles  = 4096
	maxBundle = 128 << 20
	// maxLeftOut is the number of left-out files that are named.
	maxLeftOut = 100
)

// BundleManifest describes the content of a bundle.
type BundleManifest struct {
	Format int `json:"format"`
	// Tool is the build that made it, and Time the time, RFC 3339 in UTC.
	Tool     string `json:"tool"`
	Time     string `json:"time"`
	Hostname string `json:"hostname,omitempty"`
	BootID   string `json:"bootID,omitempty"`
	// Masked says that tenants' names are replaced. Notes explain that, and name the left-out files with the reasons.
	Masked bool         `json:"masked"`
	Notes  []string     `json:"notes"`
	Files  []BundleFile `json:"files"`
}

// BundleFile is one file of a bundle.
type BundleFile struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Bundle is a support bundle: the known facts of a node or a cluster in one .tar.gz, for another person to examine. It has no credentials,
// and with a mask no names of tenants. It is not safe for concurrent use.
type Bundle struct {
	files []content
	total int64
	left  int
	notes []string
	keep  []string
}

type content struct {
	name string
	data []byte
	// done says that the data is scrubbed and masked already.
	done bool
}

// Add includes a file. Its credentials and, on request, names are removed when it is written. Files beyond the limits are
// left out, and the manifest names them.
func (b *Bundle) Add(name string, data []byte) { b.add(content{name: path.Clean(name), data: data}) }

// AddDone includes a file unchanged. The caller has removed data that must not leave the node.
func (b *Bundle) AddDone(name string, data []byte) {
	b.files = append(b.files, content{name: name, data: data, done: true})
}

func (b *Bundle) add(c content) {
	if b.total += int64(len(c.data)); len(b.files) >= maxFiles || b.total > maxBundle {
		b.total -= int64(len(c.data))
		if b.left++; b.left <= maxLeftOut {
			b.Note(fmt.Sprintf("%s (%d bytes) is left out: the bundle has reached its size limit", c.name, len(c.data)))
		}
		return
	}
	b.files = append(b.files, c)
}

// AddJSON includes a value as JSON.
func (b *Bundle) AddJSON(name string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write down %s: %w", name, err)
	}
	b.Add(name, append(data, '\n'))
	return nil
}

// Note adds a sentence to the manifest.
func (b *Bundle) Note(text string) { b.notes = append(b.notes, text) }

// Notes are the sentences that were added.
func (b *Bundle) Notes() []string { return slices.Clone(b.notes) }

// Keep names words that a mask leaves as they are outside of fields, such as paths of the system.
func (b *Bundle) Keep(words ...string) { b.keep = append(b.keep, words...) }

// Write writes the bundle; mask is nil for one with all names. The manifest's Files,
// Notes and Masked are filled in.
func (b *Bundle) Write(w io.Writer, m BundleManifest, mask *Mask) error {
	m.Format, m.Masked, m.Files = bundleFormat, mask != nil, []BundleFile{}
	m.Notes = append([]string{}, b.notes...)
	files := slices.Clone(b.files)
	if n := b.reserve(mask); n > 0 {
		m.Notes = append(m.Notes, fmt.Sprintf("names that are replaced and are also words of nodes or of these documents, as dev or gpu: %d. "+
			"They are replaced in fields that hold a namespace, claim or pod, and stay in other text", n))
	}
	for i := range files {
		f := &files[i]
		if !f.done {
			f.name, f.data = string(mask.Apply([]byte(f.name))), mask.document(f.name, scrub(f.name, f.data))
		}
		// Of the data as a reader gets it, after names and credentials are replaced.
		sum := sha256.Sum256(f.data)
		m.Files = append(m.Files, BundleFile{Name: f.name, Bytes: int64(len(f.data)), SHA256: hex.EncodeToString(sum[:])})
	}
	manifest, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	first := content{name: BundleManifestName, data: append(mask.Apply(ScrubJSON(manifest)), '\n')}
	if err := pack(w, m.Time, append([]content{first}, files...)); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return nil
}

// reserve excludes the words of the bundle's own documents from a mask, and returns the number of names that are such
// words.
func (b *Bundle) reserve(mask *Mask) int {
	if mask == nil {
		return 0
	}
	mask.ReserveVocabulary()
	mask.Reserve([]byte(strings.Join(b.keep, "\n")))
	for i := range b.files {
		if f := &b.files[i]; !f.done && isJSON(f.name) {
			mask.ReserveKeys(f.data)
		}
	}
	return mask.Reserved()
}

func isJSON(name string) bool { return path.Ext(name) == ".json" || path.Ext(name) == ".ndjson" }

func scrub(name string, data []byte) []byte {
	if isJSON(name) {
		return ScrubJSON(data)
	}
	return Scrub(data)
}

// document replaces names in a file. In JSON, it replaces those in fields first.
func (m *Mask) document(name string, data []byte) []byte {
	if isJSON(name) {
		data = m.Fields(data)
	}
	return m.Apply(data)
}

func pack(w io.Writer, when string, files []content) error {
	compressed := gzip.NewWriter(w)
	out := tar.NewWriter(compressed)
	made, _ := time.Parse(time.RFC3339, when)
	for i := range files {
		f := &files[i]
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o600, Size: int64(len(f.data)), ModTime: made, Format: tar.FormatPAX}
		if err := out.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(out, bytes.NewReader(f.data)); err != nil {
			return err
		}
	}
	return errors.Join(out.Close(), compressed.Close())
}
