package ledger

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// verifyGone reports on a ledger without any event: [ErrNone] where nothing says that
// there ever was one, and otherwise what says so.
func verifyGone(fsys fs.FS, o Options) (*Report, error) {
	left, err := leftovers(fsys)
	if err != nil {
		return nil, err
	}
	if len(left) == 0 && len(o.Anchors) == 0 && o.Witness == "" {
		return nil, ErrNone
	}
	c := &check{r: &Report{Key: o.Key, Problems: []Problem{}}, roots: map[int64][]Anchor{}}
	if len(left) > 0 {
		c.gone(fmt.Sprintf("the events are gone, and other files of the ledger are there: %s", strings.Join(left, ", ")))
	}
	if o.Witness != "" {
		c.gone("there is no event, and " + o.Witness)
	}
	if c.v, err = verifierOf(fsys, o.Key); err != nil {
		c.strangers(o.Anchors)
		return c.r, nil
	}
	c.r.Origin = c.v.Name()
	if slices.Contains(left, PublicKeyFile) {
		if err := c.keys(fsys); err != nil {
			return nil, err
		}
	}
	c.anchors(o.Anchors)
	c.cutOff()
	return c.r, nil
}

func (c *check) gone(what string) { c.problem(Problem{Kind: Missing, Seq: 0, What: what}) }

// strangers takes anchors where no key says whose the ledger was.
func (c *check) strangers(all []Anchor) {
	if len(all) == 0 {
		return
	}
	c.r.Anchors = len(all)
	largest := slices.MaxFunc(all, func(a, b Anchor) int { return int(min(max(a.Size-b.Size, -1), 1)) })
	c.problem(Problem{Kind: Truncated, Seq: 0, What: fmt.Sprintf(
		"%d anchors were given, one of %d events of %s, and there is neither an event nor a key that says whose they were", len(all), largest.Size, largest.Origin)})
}

// leftovers are the names of the files that a ledger has beside its events.
func leftovers(fsys fs.FS) ([]string, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list ledger: %w", err)
	}
	var names []string
	for _, e := range entries {
		if slices.Contains([]string{PublicKeyFile, PrivateKeyFile, PseudonymsFile}, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
