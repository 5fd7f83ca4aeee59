package stage

import "github.com/kata-vfio/kata-vfio/pkg/cluster"

// forgetAfter is how long the memory keeps a fact that no view shows any more. It is long, because a view of stale caches may
// lack an object that exists.
const forgetAfter Millis = 60 * 60 * 1000

// Memory is what a controller remembers between decisions: since when something is as it is, by its own clock. A new
// controller remembers nothing, so that it waits longer. The zero value is empty.
type Memory struct {
	facts map[string]*fact
	turns map[cluster.ID]*fact
	// pauses are those of profiles.
	pauses map[string]pause
}

// fact is something that was seen.
type fact struct{ since, last Millis }

// since returns when key was first seen, which is the time of the first call for the key.
func (m *Memory) since(key string, now Millis) Millis {
	return seen(&m.facts, key, now)
}

// turn returns since when a device waits for its turn: since its last stage was created, or since it was first seen.
func (m *Memory) turn(id cluster.ID, now Millis) Millis {
	return seen(&m.turns, id, now)
}

// hadTurn puts the device at the end of the line, also behind devices that are first seen at the same time.
func (m *Memory) hadTurn(id cluster.ID, now Millis) {
	seen(&m.turns, id, now)
	m.turns[id].since = now + 1
}

func seen[K comparable](facts *map[K]*fact, key K, now Millis) Millis {
	if *facts == nil {
		*facts = map[K]*fact{}
	}
	f := (*facts)[key]
	if f == nil {
		f = &fact{since: now}
		(*facts)[key] = f
	}
	f.last = now
	return f.since
}

// The first and the longest pause after a creation that failed.
const (
	firstPause   Millis = 5 * 1000
	longestPause Millis = 5 * 60 * 1000
)

// pause is the time in which no stage of a profile is created.
type pause struct{ until, length Millis }

// Created records whether an action [Create] succeeded. After a failure the profile pauses, twice as long each time: the
// remains of the attempt are deleted at once, and without a pause the next attempts would follow without end.
func (m *Memory) Created(profile string, ok bool, now Millis) {
	if ok {
		delete(m.pauses, profile)
		return
	}
	if m.pauses == nil {
		m.pauses = map[string]pause{}
	}
	length := min(max(firstPause, 2*m.pauses[profile].length), longestPause)
	m.pauses[profile] = pause{now + length, length}
}

// sweep forgets what was not seen for long.
func (m *Memory) sweep(now Millis) {
	forget(m.facts, now)
	forget(m.turns, now)
}

func forget[K comparable](facts map[K]*fact, now Millis) {
	for key, f := range facts {
		if now-f.last > forgetAfter {
			delete(facts, key)
		}
	}
}
