package nri

import (
	"sync"

	"github.com/containerd/nri/pkg/api"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// sandboxes are the ids of those that run, as far as the runtime has told.
type sandboxes struct {
	mu  sync.Mutex // guards ids
	ids map[string]struct{}
}

func (s *sandboxes) set(ids map[string]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = ids
}

func (s *sandboxes) add(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]struct{}{}
	}
	s.ids[id] = struct{}{}
}

func (s *sandboxes) remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, id)
}

func (s *sandboxes) has(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.ids[id]
	return ok
}

// sandboxOf returns the pod's sandbox for the journal. The runtime names the
// process of a VM's monitor; without its start time the process is left out,
// since another may have its number tomorrow.
func sandboxOf(host Host, pod *api.PodSandbox) journal.Sandbox {
	s := journal.Sandbox{ID: pod.GetId(), PodUID: pod.GetUid()}
	if pid := int(pod.GetPid()); pid != 0 {
		if start, err := host.StartTime(pid); err == nil {
			s.VMM = journal.Process{PID: pid, StartTime: start}
		}
	}
	return s
}
