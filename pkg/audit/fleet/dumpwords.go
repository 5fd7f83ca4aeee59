package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// leftOut replaces a value that is not in a bundle.
const leftOut = "(left out)"

// words are the images and addresses of tenants' pods, which are cut out of the texts that quote them.
type words struct {
	known    map[string]bool
	texts    []*string
	replacer *strings.Replacer
}

func (w *words) add(list ...string) {
	for _, word := range list {
		if word != "" {
			w.known[word] = true
		}
	}
}

// cut replaces the words in a text, once all words are known.
func (w *words) cut(text *string) {
	if w.replacer == nil {
		w.texts = append(w.texts, text)
		return
	}
	*text = w.replacer.Replace(*text)
}

// complete says that all words are known. A tenant chooses its words. They are replaced in one pass, because a word may be a part of
// what replaces it, and the longest first, because a word may be the start of another one.
func (w *words) complete() {
	var pairs []string
	for _, word := range slices.SortedFunc(maps.Keys(w.known), func(a, b string) int { return cmp.Compare(len(b), len(a)) }) {
		pairs = append(pairs, word, leftOut)
	}
	w.replacer = strings.NewReplacer(pairs...)
	for _, text := range w.texts {
		w.cut(text)
	}
}
