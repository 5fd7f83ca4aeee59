package writer

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// tenant is a party that has a share of a ledger's bytes: a namespace, by its name or pseudonym, or one of the values below, which
// can't be the name of a namespace.
type tenant string

const (
	// theNode has the events without a claim: starts, drains, quarantines, audits.
	theNode tenant = ""
	// theBindings are the bindings without a claim, such as those of warm devices. Tenants cause them.
	theBindings tenant = "/bindings"
	// theRetention has the events that record what was dropped. Tenants with many events cause these, too.
	theRetention tenant = "/retention"
)

func (t tenant) String() string {
	switch t {
	case theNode:
		return "the node itself"
	case theBindings:
		return "bindings without a claim"
	case theRetention:
		return "what was dropped before"
	}
	return "namespace " + string(t)
}

// words names tenants, some of them if there are many.
func words(all []tenant) string {
	const most = 8
	var names []string
	for _, t := range all[:min(len(all), most)] {
		names = append(names, t.String())
	}
	if more := len(all) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// namespaceWord follows the UID of an event's claim, and retentionWord is the type of an event. See [claimWord].
const (
	namespaceWord = `,"namespace":"`
	retentionWord = `,"type":"` + string(ledger.Retention) + `"`
)

// whose returns the tenant that an event's line belongs to. It does not decode the line, since a ledger may have a gibibyte.
func whose(line []byte) tenant {
	_, rest, ok := bytes.Cut(line, []byte(claimWord))
	switch {
	case !ok && bytes.Contains(line, []byte(retentionWord)):
		return theRetention
	case !ok:
		return theNode
	}
	if bytes.HasPrefix(rest, []byte(ledger.BindingUID)) {
		return theBindings
	}
	_, rest, _ = bytes.Cut(rest, []byte(`"`))
	rest, ok = bytes.CutPrefix(rest, []byte(namespaceWord))
	name, _, _ := bytes.Cut(rest, []byte(`"`))
	if !ok || bytes.IndexByte(name, '\\') >= 0 { // no namespace and no pseudonym has a backslash
		return theNode
	}
	return tenant(name)
}

// usage is the size of a file, and how many of its bytes each tenant has.
type usage struct {
	size int64
	by   map[tenant]int64
}

// usageIn counts the bytes of a file's data. A checkpoint counts for the event before it.
func usageIn(name string, data []byte) usage {
	u := usage{size: int64(len(data)), by: map[tenant]int64{}}
	last, isHeader := theNode, ledger.IsSegment(name)
	for line := range bytes.Lines(data) {
		if !isHeader && !ledger.IsMark(line) {
			last = whose(line)
		}
		isHeader = false
		u.by[last] += int64(len(line))
	}
	return u
}

// usages returns the usage of each file. Files that did not change since the last call are not read again.
func (w *Writer) usages(files []file) ([]usage, error) {
	known := map[string]usage{}
	all := make([]usage, len(files))
	var buffer []byte
	for i, f := range files {
		u, ok := w.used[f.name]
		if !ok || u.size != f.size {
			var err error
			if buffer, err = w.readFrom(f.name, 0, buffer); err != nil {
				return nil, err
			}
			u = usageIn(f.name, buffer)
		}
		all[i], known[f.name] = u, u
	}
	w.used = known
	return all, nil
}

// fairShare returns the largest number of bytes that each tenant may have so that all events fit into the limit. What a tenant does
// not use is available to the others. So the share is never less than the limit divided by the number of tenants, and unlimited if
// everything fits.
func fairShare(used map[tenant]int64, limit int64) int64 {
	rest, left := limit, int64(len(used))
	for _, n := range slices.Sorted(maps.Values(used)) {
		if n > rest/left {
			return rest / left
		}
		rest, left = rest-n, left-1
	}
	return math.MaxInt64
}

// cutToShares drops the oldest events of the tenants that use more than their share, until none of them does. The newest segment stays.
func (w *Writer) cutToShares(files []file, total int64) error {
	used, err := w.usages(files)
	if err != nil {
		return err
	}
	sum := map[tenant]int64{}
	for _, u := range used {
		for t, n := range u.by {
			sum[t] += n
		}
	}
	share := fairShare(sum, w.config.RetainBytes)
	why := fmt.Sprintf("because all events have %d bytes, and the limit is %d, of which each namespace has a share of %d", total, w.config.RetainBytes, share)
	for i, f := range files[:len(files)-1] {
		over := slices.Sorted(maps.Keys(used[i].by))
		over = slices.DeleteFunc(over, func(t tenant) bool { return sum[t] <= share })
		if len(over) == 0 {
			continue
		}
		if cut, err := w.cut(f.name, over, why); err != nil || !cut {
			return err
		}
		for _, t := range over {
			sum[t] -= used[i].by[t]
		}
	}
	return nil
}
