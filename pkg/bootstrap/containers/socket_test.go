package containers_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/containers"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
)

func TestTheSocketsFileIsMadeAtEachBoot(t *testing.T) {
	const (
		name = "kata-vfio-pod-resources"
		etc  = "etc/systemd/system/"
		usr  = "usr/lib/systemd/system/"
	)
	o := containers.Options{Runtime: containers.RuntimeNone, PodResourcesSocket: new(true)}
	for why, c := range map[string]struct {
		files
		want   []string
		target string
	}{
		"by files of our own": {
			files{usr + "sockets.target": "[Unit]\n"},
			[]string{etc + name + ".service", etc + name + ".socket", etc + "sockets.target.wants/" + name + ".socket"},
			"/" + etc + name + ".socket",
		},
		"by a package's": {
			files{usr + name + ".socket": "x", usr + name + ".service": "x"},
			[]string{etc + "sockets.target.wants/" + name + ".socket"},
			"/" + usr + name + ".socket",
		},
	} {
		fsys, w := open(t, c.files, o)
		if diff := cmp.Diff(c.want, changes(t, fsys, w)); diff != "" {
			t.Errorf("%s: the files differ (-want +got):\n%s", why, diff)
		}
		link := w.Files[len(w.Files)-1]
		if link.Target != c.target || !cmp.Equal(link.Then, []state.FollowUp{state.UnitsReload, state.SocketStart}) {
			t.Errorf("%s: the link is %+v", why, link)
		}
		apply(t, fsys, w)
		if left := changes(t, fsys, wanted(t, fsys, o)); len(left) > 0 {
			t.Errorf("%s: it wants %v again", why, left)
		}
	}
	_, w := open(t, nil, o)
	if len(w.Files) > 0 || len(w.Problems) != 1 || w.Problems[0].Fatal {
		t.Errorf("without systemd it wants %v, with the problems %+v", paths(w), w.Problems)
	}
}
