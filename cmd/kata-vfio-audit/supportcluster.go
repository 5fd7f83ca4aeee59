package main

import (
	"context"

	"github.com/kata-vfio/kata-vfio/pkg/audit/fleet"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// addCluster reads the cluster, if one is named. It notes the kinds that can't be read.
func (s *support) addCluster(ctx context.Context, b *output.Bundle, mask *output.Mask) error {
	if !s.cluster.kube.Named() {
		b.Note("the bundle has no cluster objects: --kubeconfig is not set")
		return nil
	}
	client, _, err := s.cluster.connect()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	_, err = (&fleet.Dump{Namespace: s.namespace, Flag: "--namespace", Mask: mask}).Add(ctx, client, b)
	return err
}
