package facts

import (
	"regexp"
	"slices"
	"strings"
)

// dropMknod is the item of virtiofsd's option modcaps that drops CAP_MKNOD.
const dropMknod = "-mknod"

var (
	// oneWord matches the option with its list in one word: "--modcaps=-mknod:+chown", or "modcaps=..." after -o.
	oneWord = regexp.MustCompile(`((?:^--|^|,)modcaps=)([^,]*)`)
	// anyWord matches the option in arguments that are joined by spaces.
	anyWord = regexp.MustCompile(`\bmodcaps[= ]([^ ,]*)`)
)

// DropsMknod reports whether the arguments take CAP_MKNOD from virtiofsd. Items of the list apply in their order
// (virtiofsd(1): --modcaps).
func DropsMknod(args []string) bool {
	all := anyWord.FindAllStringSubmatch(strings.Join(args, " "), -1)
	if len(all) == 0 {
		return false
	}
	without := false
	for item := range strings.SplitSeq(strings.ToLower(all[len(all)-1][1]), ":") {
		switch item {
		case dropMknod:
			without = true
		case "+mknod":
			without = false
		}
	}
	return without
}

// WithoutMknod returns the arguments with an option that makes [DropsMknod] true. virtiofsd accepts the option once, so an existing
// list is extended.
func WithoutMknod(args []string) []string {
	all := slices.Clone(args)
	if DropsMknod(args) {
		return all
	}
	for i := len(all) - 1; i >= 0; i-- {
		switch {
		case oneWord.MatchString(all[i]):
			all[i] = oneWord.ReplaceAllString(all[i], "${1}${2}:"+dropMknod)
			return all
		case all[i] == "--modcaps" && i+1 < len(all):
			all[i+1] += ":" + dropMknod
			return all
		}
	}
	return append(all, "--modcaps="+dropMknod)
}
