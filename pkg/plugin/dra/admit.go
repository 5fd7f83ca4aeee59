package dra

import (
	"context"
	"errors"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// admit checks the claim against the gate and, if it has shared GPUs, against the claims of other drivers. It looks up the claim's tenant
// for the plan.
func (d *Plugin) admit(ctx context.Context, c *resourceapi.ResourceClaim, req *claim.Request) error {
	if err := d.config.Gate.Admit(ctx, req); err != nil {
		return err
	}
	if d.config.Tenants != nil {
		var err error
		if req.Tenant, err = d.config.Tenants.Tenant(ctx, req); err != nil {
			return err
		}
	}
	if d.config.Twins == nil {
		return nil
	}
	if err := d.config.Twins.Reserved(ctx, c, req); err != nil {
		return err
	}
	err := d.config.Twins.Free(ctx, req)
	if refused, ok := errors.AsType[*rule.RefusedError](err); ok && refused.Has(rule.TwinInUse) {
		return errors.Join(err, d.takeBack(ctx, req)) // an earlier call may have crashed after it bound the devices
	}
	return err
}

// refuse returns the error for a claim whose pod may not have its devices.
func refuse(req *claim.Request, code rule.Code, text, fix string) error {
	return &rule.RefusedError{Subject: "claim " + req.Namespace + "/" + req.Name, Verdicts: []rule.Verdict{{Code: code, Text: text, Fix: fix}}}
}

// refused writes a refusal to the ledger, and returns its error.
func (d *Plugin) refused(ctx context.Context, req *claim.Request, cause error) error {
	if _, decided := errors.AsType[*rule.RefusedError](cause); decided {
		return errors.Join(cause, d.config.Claims.Refused(ctx, req, cause))
	}
	return cause
}

// takeBackLimit bounds the undo of a Prepare after another driver's claim got the GPU first. The undo may take longer than the kubelet
// waits.
const takeBackLimit = 30 * time.Second

// takeBack unprepares a claim that must not have its devices. If a VM has the devices, it keeps them, and the error says so.
func (d *Plugin) takeBack(ctx context.Context, req *claim.Request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackLimit)
	defer cancel()
	return d.unprepare(ctx, kubeletplugin.NamespacedObject{
		NamespacedName: types.NamespacedName{Namespace: req.Namespace, Name: req.Name}, UID: types.UID(req.UID),
	}, nil)
}
