package dra

import (
	"context"
	"log/slog"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// StatusSync sees to it that each prepared claim's status says so, however long
// the API server was away and whether the plugin was restarted meanwhile: what is
// missing follows from the journal and from the claims themselves. It also follows the
// links of their VFs. It is not safe for concurrent use.
type StatusSync struct {
	Reporter   *Reporter
	Records    func() ([]*journal.Record, []error)
	Attributes Attributes

	// reported are the claims whose status is right, by UID, as of which preparation and links.
	current map[types.UID]string
	// problem was logged last.
	problem string
}

// Look asks for the prepared claims that are not known to have their status, and
// reports those again that lack it. Where the API server does not answer, the next
// Look goes on.
func (s *StatusSync) Look(ctx context.Context) {
	records, _ := s.Records() // what can't be read is a metric of its own
	told, away := map[types.UID]string{}, error(nil)
	for _, rec := range records {
		uid := types.UID(rec.Plan.Claim.UID)
		if rec.Kind != journal.Claim || rec.State != journal.Prepared {
			continue
		}
		links := s.Reporter.Uplink.links(ctx, rec)
		state := rec.Since + linkWords(links)
		if done, known := s.current[uid]; known && done == state {
			told[uid] = done
			continue
		}
		if away != nil || s.Reporter.pending(uid) {
			continue
		}
		right, err := s.check(ctx, rec, links)
		switch {
		case right:
			told[uid] = state
		case err != nil:
			away = err
		}
	}
	s.current = told
	s.log(ctx, away)
}

// check asks for one claim, and reports it again where its status does not say
// that it is prepared, or what its VFs' links are. A claim that is gone needs no status,
// and that of one which was refused later stays.
func (s *StatusSync) check(ctx context.Context, rec *journal.Record, links map[pci.Address]vfLink) (right bool, err error) {
	ref := rec.Plan.Claim
	c, err := s.Reporter.client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	case string(c.UID) != ref.UID || showsPrepared(c, rec) && (!isReady(c, rec) || showsLinks(c, rec, links)):
		return true, nil
	}
	s.Reporter.enqueue(preparedReport(c, rec, s.Attributes, links, s.Reporter.anchor()))
	return false, nil
}

// log tells once why claims could not be asked for.
func (s *StatusSync) log(ctx context.Context, err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != s.problem && ctx.Err() == nil {
		s.Reporter.log.WarnContext(ctx, "the status of prepared claims is not known; it is looked for again", slog.Any("err", err))
	}
	s.problem = problem
}

// showsPrepared reports whether a claim's status has what was told of each of its
// devices at its preparation, or later.
func showsPrepared(c *resourceapi.ResourceClaim, rec *journal.Record) bool {
	since, err := time.Parse(time.RFC3339, rec.Since)
	if err != nil {
		since = time.Time{} // any status will do
	}
	for _, parts := range rec.Plan.Allocated() {
		ready := readyOf(c, parts[0].Pool, parts[0].Published())
		if ready == nil || ready.LastTransitionTime.Time.Before(since) {
			return false
		}
	}
	return true
}

// isReady reports whether a claim's status says of each of its devices that it is ready.
func isReady(c *resourceapi.ResourceClaim, rec *journal.Record) bool {
	for _, parts := range rec.Plan.Allocated() {
		if ready := readyOf(c, parts[0].Pool, parts[0].Published()); ready == nil || ready.Status != metav1.ConditionTrue {
			return false
		}
	}
	return true
}

// readyOf returns the condition Ready of a device of ours, nil for none.
func readyOf(c *resourceapi.ResourceClaim, pool, name string) *metav1.Condition {
	return meta.FindStatusCondition(conditionsOf(c, pool, name), ConditionReady)
}

// conditionsOf returns the conditions of a device of ours.
func conditionsOf(c *resourceapi.ResourceClaim, pool, name string) []metav1.Condition {
	for i := range c.Status.Devices {
		d := &c.Status.Devices[i]
		if d.Driver == v1alpha1.DriverName && d.Pool == pool && d.Device == name {
			return d.Conditions
		}
	}
	return nil
}

// pending reports whether a report of the claim is on its way.
func (r *Reporter) pending(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest[uid] != nil
}
