package config

// MergeCRIO puts a file of CRI-O's over those before it. A handler takes the place of
// the whole handler before it, since the decoder makes maps' values anew
// (UpdateFromDropInFile).
func (t Table) MergeCRIO(other Table) {
	handlers := t.Sub("crio", "runtime", "runtimes")
	for _, name := range other.Sub("crio", "runtime", "runtimes").Names() {
		delete(handlers, name)
	}
	t.Merge(other)
}
