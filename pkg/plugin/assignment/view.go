package assignment

import (
	"slices"
)

// View is all assignments of a node at one moment. It is immutable.
type View struct {
	all    []*Assignment
	byPod  map[string][]*Assignment
	byName map[podName][]string
	byNode map[string][]*Assignment
	byCDI  map[string]*Assignment
}

// podName is a pod's name; pods that follow each other may share it.
type podName struct{ namespace, name string }

func newView(all []*Assignment) *View {
	v := &View{
		all: all, byPod: map[string][]*Assignment{}, byName: map[podName][]string{},
		byNode: map[string][]*Assignment{}, byCDI: map[string]*Assignment{},
	}
	for _, a := range all {
		v.enter(a)
	}
	return v
}

func (v *View) enter(a *Assignment) {
	for _, p := range a.Claim.Pods {
		v.byPod[p.UID] = append(v.byPod[p.UID], a)
		name := podName{a.Claim.Namespace, p.Name}
		if !slices.Contains(v.byName[name], p.UID) {
			v.byName[name] = append(v.byName[name], p.UID)
		}
	}
	for _, d := range a.Devices {
		v.byCDI[d.CDI] = a
		for _, node := range d.Nodes {
			v.byNode[node] = append(v.byNode[node], a)
		}
	}
}

// All returns every assignment, by claim UID.
func (v *View) All() []*Assignment { return v.all }

// OfPod returns the assignments of the claims that the pod with the UID
// consumes, whatever their state, by claim UID.
func (v *View) OfPod(uid string) []*Assignment { return v.byPod[uid] }

// PodUIDs returns the UIDs of the consumers with that name: more than one while
// a pod follows another of its name whose claim is not unprepared yet.
func (v *View) PodUIDs(namespace, name string) []string { return v.byName[podName{namespace, name}] }

// WithNode returns the assignments whose CDI specs name the device node.
func (v *View) WithNode(path string) []*Assignment { return v.byNode[path] }

// WithCDI returns the assignment of the device with the qualified CDI name.
func (v *View) WithCDI(name string) (*Assignment, bool) {
	a, ok := v.byCDI[name]
	return a, ok
}
