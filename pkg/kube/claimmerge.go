package kube

import (
	"encoding/json"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"
)

// merged returns the entries of a claim with the wanted entries in place of those for the same devices. A replaced entry keeps its
// conditions of other types.
func merged(now []resourceapi.AllocatedDeviceStatus, want *resourceac.ResourceClaimStatusApplyConfiguration) ([]resourceapi.AllocatedDeviceStatus, error) {
	// An apply configuration has the same JSON form as its type, and client-go has no conversion back to the type.
	text, err := json.Marshal(want)
	if err != nil {
		return nil, fmt.Errorf("encode the entries of devices: %w", err)
	}
	var wanted resourceapi.ResourceClaimStatus
	if err := json.Unmarshal(text, &wanted); err != nil {
		return nil, fmt.Errorf("decode the entries of devices: %w", err)
	}
	all := slices.Clone(now)
	for _, w := range wanted.Devices {
		i := slices.IndexFunc(all, func(d resourceapi.AllocatedDeviceStatus) bool { return isSameDevice(&d, &w) })
		if i < 0 {
			all = append(all, w)
			continue
		}
		// A merge patch replaces the whole list, so conditions and data of other writers must be in it.
		w.Conditions = append(w.Conditions, others(all[i].Conditions, w.Conditions)...)
		if w.Data == nil {
			w.Data = all[i].Data
		}
		if w.NetworkData == nil {
			w.NetworkData = all[i].NetworkData
		}
		all[i] = w
	}
	return all, nil
}

// isSameDevice reports whether two entries have the same key in the list.
func isSameDevice(a, b *resourceapi.AllocatedDeviceStatus) bool {
	return a.Driver == b.Driver && a.Pool == b.Pool && a.Device == b.Device && (a.ShareID == nil) == (b.ShareID == nil) &&
		(a.ShareID == nil || *a.ShareID == *b.ShareID)
}

// others returns the conditions in now whose types are not in wanted.
func others(now, wanted []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(now), func(c metav1.Condition) bool {
		return slices.ContainsFunc(wanted, func(w metav1.Condition) bool { return w.Type == c.Type })
	})
}
