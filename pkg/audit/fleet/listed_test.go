package fleet_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cluster"
)

// listed has the objects of the API server.
type listed struct {
	Slices    []resourceapi.ResourceSlice
	Claims    []resourceapi.ResourceClaim
	Classes   []resourceapi.DeviceClass
	Pods      []corev1.Pod
	Events    []corev1.Event
	Missing   map[fleet.Kind]string
	Namespace string
	Now       time.Time
	Reports   []*finding.Report
	Rules     []resourceapi.DeviceTaintRule
}

// state is the fleet's state of the objects as they are now.
func (l *listed) state() *fleet.State {
	s := &fleet.State{
		Cluster: &cluster.Cluster{}, Events: l.Events, Missing: l.Missing, Namespace: l.Namespace, Now: l.Now, Reports: l.Reports, TaintRules: l.Rules,
	}
	for i := range l.Slices {
		s.Cluster.Add(&l.Slices[i])
	}
	for i := range l.Claims {
		s.Cluster.Add(&l.Claims[i])
	}
	for i := range l.Classes {
		s.Cluster.Add(&l.Classes[i])
	}
	for i := range l.Pods {
		s.Cluster.Add(&l.Pods[i])
	}
	return s
}
