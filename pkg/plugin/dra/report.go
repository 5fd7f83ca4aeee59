package dra

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	resourceac "k8s.io/client-go/applyconfigurations/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/claim"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/publish"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Conditions of a device in its claim's status.
const (
	// ConditionReady: the device is bound to its VFIO driver, and its CDI spec is written.
	ConditionReady = "Ready"
	// conditionIsolated: no bypass of the IOMMU lets another tenant reach the device.
	conditionIsolated = "Isolated"
	// conditionSanitized: a sanitizing stage wiped and measured the device before the claim, and no tenant had it since.
	conditionSanitized = "Sanitized"
	// conditionReset: the device is reset, and its registers are compared, before another tenant gets it. While the condition is true, its
	// reason says what is known of the device's memory.
	conditionReset = "Reset"
	// ConditionLinkUp: the VF has a link. Only VFs with a MAC address have the condition.
	ConditionLinkUp = "LinkUp"
)

// DeviceData is status.devices[].data of a claim, as JSON.
type DeviceData struct {
	// Address is the address of the function ("0000:3b:00.0"), or of a pair's GPU. IOMMUGroup is its IOMMU group in this boot of the node.
	Address    string `json:"address"`
	IOMMUGroup int    `json:"iommuGroup"`
	VFIODriver string `json:"vfioDriver"`
	// Functions are the functions that the VM gets: the device first, a pair's VF last. Companions may stay on the node, bound to VFIO.
	Functions []string `json:"functions"`
	// Representor is the node's interface for a VF whose PF is in switchdev mode.
	Representor string `json:"representor,omitempty"`
	// Evidence is the checksum of the node's record of the claim.
	Evidence string `json:"evidence,omitempty"`
	// Ledger is the signed checkpoint of the node's ledger that covers the claim's events. With it
	// `kata-vfio-audit ledger verify --anchor` proves that no earlier event was rewritten.
	Ledger string `json:"ledger,omitempty"`
}

// report is the report on one claim, for its status and for Events.
type report struct {
	claim   *resourceapi.ResourceClaim
	devices []*resourceac.AllocatedDeviceStatusApplyConfiguration
	// problem is empty when all went well.
	reason  rule.Code
	problem string
}

// preparedReport returns the report on a prepared claim, with the links of its VFs.
func preparedReport(c *resourceapi.ResourceClaim, rec *journal.Record, attributes Attributes, links map[pci.Address]vfLink, anchor string) *report {
	r := &report{claim: c}
	// The time of the record is better than the current time: a repeated report then changes nothing.
	since := metav1.Now()
	if t, err := time.Parse(time.RFC3339, rec.Since); err == nil {
		since = metav1.NewTime(t)
	}
	for _, parts := range rec.Plan.Allocated() {
		name := parts[0].Published()
		status := resourceac.AllocatedDeviceStatus().WithDriver(v1alpha1.DriverName).WithPool(parts[0].Pool).WithDevice(name).
			WithConditions(
				condition(ConditionReady, metav1.ConditionTrue, rule.Prepared, readyWords(parts), since),
				isolatedCondition(attributes(name), since), resetCondition(&rec.Plan, parts, since),
			)
		if sanitized := sanitizedCondition(parts, since); sanitized != nil {
			status.WithConditions(sanitized)
		}
		before := meta.FindStatusCondition(listConditions(c, parts[0].Pool, name), ConditionLinkUp)
		if link := linkCondition(links, parts, before, since); link != nil {
			status.WithConditions(link)
		}
		facts := newDeviceData(rec, parts)
		facts.Ledger = anchor
		if data, err := json.Marshal(facts); err == nil {
			status.WithData(runtime.RawExtension{Raw: data})
		}
		for i := range parts {
			if n := networkData(&rec.Plan, &parts[i]); n != nil {
				status.WithNetworkData(applyNetwork(n))
			}
		}
		r.devices = append(r.devices, status)
	}
	return r
}

// longestMessage is the limit for a condition's message.
const longestMessage = 32768

func condition(kind string, status metav1.ConditionStatus, reason rule.Code, message string, since metav1.Time) *metaac.ConditionApplyConfiguration {
	return metaac.Condition().WithType(kind).WithStatus(status).WithReason(string(reason)).
		WithMessage(shorten(message, longestMessage)).WithLastTransitionTime(since)
}

func isolatedCondition(attrs map[resourceapi.QualifiedName]resourceapi.DeviceAttribute, since metav1.Time) *metaac.ConditionApplyConfiguration {
	a, known := attrs[publish.AttrIsolated]
	switch {
	case !known || a.BoolValue == nil:
		return condition(conditionIsolated, metav1.ConditionUnknown, rule.NotJudged, "the node has not published the device yet", since)
	case *a.BoolValue:
		return condition(conditionIsolated, metav1.ConditionTrue, rule.Isolated, "its IOMMU group, interrupts and path to the CPU keep it apart", since)
	}
	return condition(conditionIsolated, metav1.ConditionFalse, rule.Waived, "it is not isolated, which its DeviceClass accepts", since)
}

// sanitizedCondition returns the condition for the sanitizing stages of a device's parts before the claim; nil if there were
// none.
func sanitizedCondition(parts []plan.Device, since metav1.Time) *metaac.ConditionApplyConfiguration {
	var words []string
	for i := range parts {
		if s := parts[i].Sanitized; s != nil {
			words = append(words, fmt.Sprintf("%s by %s", parts[i].Name, s))
		}
	}
	// A pair counts as sanitized only if both of its functions were sanitized.
	if len(words) < len(parts) {
		return nil
	}
	return condition(conditionSanitized, metav1.ConditionTrue, rule.Sanitized, strings.Join(words, "; "), since)
}

// resetCondition returns the condition for the resets of a device's parts.
func resetCondition(pl *plan.Plan, parts []plan.Device, since metav1.Time) *metaac.ConditionApplyConfiguration {
	var methods, weak []string
	for i := range parts {
		fn, _ := pl.Function(parts[i].Address)
		for _, r := range parts[i].Resets {
			if fn != nil && isolation.IsWeak(fn.Vendor, fn.PF != nil, r.Method) {
				weak = append(weak, parts[i].Address.String())
			}
			if !slices.Contains(methods, r.Method) {
				methods = append(methods, r.Method)
			}
		}
	}
	if len(methods) == 0 {
		return condition(conditionReset, metav1.ConditionFalse, rule.Waived, "its DeviceClass waives the reset between tenants", since)
	}
	message := "reset by " + strings.Join(methods, ", ") + " before anybody else gets it: " + isolation.Proven
	if slices.ContainsFunc(pl.ResetsBefore, func(r isolation.Reset) bool {
		return slices.ContainsFunc(parts, func(d plan.Device) bool { return slices.Contains(r.Set, d.Address) })
	}) {
		message += "; it was also reset before this claim, because it was not proven clean"
	}
	if len(weak) > 0 {
		message += "; no vendor says that this clears the memory of " + strings.Join(slices.Compact(weak), ", ")
		return condition(conditionReset, metav1.ConditionTrue, rule.WeakReset, message, since)
	}
	return condition(conditionReset, metav1.ConditionTrue, rule.MemoryNotChecked, message, since)
}

// readyWords describes in which way a device's parts are ready.
func readyWords(parts []plan.Device) string {
	const text = "bound to its VFIO driver, CDI spec written"
	if slices.ContainsFunc(parts, func(d plan.Device) bool { return d.Attachment == v1alpha1.AttachPhysicalEndpoint }) {
		return text + "; as a physical endpoint its VF waits on its kernel driver until the pod's network namespace is there"
	}
	return text
}

func newDeviceData(rec *journal.Record, parts []plan.Device) DeviceData {
	data := DeviceData{Address: parts[0].Address.String(), Functions: []string{}}
	if f, ok := rec.Plan.Function(parts[0].Address); ok {
		data.IOMMUGroup, data.VFIODriver = f.Group, f.Target.Driver
	}
	for i := range parts {
		if f, ok := rec.Plan.Function(parts[i].Address); ok && f.VF != nil {
			data.Representor = f.VF.Representor
		}
		for _, a := range parts[i].Give {
			data.Functions = append(data.Functions, a.String())
		}
	}
	if sum, err := journal.Checksum(rec); err == nil {
		data.Evidence = "sha256:" + sum
	}
	return data
}

// refusedReport returns the report on a claim that is not prepared.
func refusedReport(c *resourceapi.ResourceClaim, cause error) *report {
	r := &report{claim: c, reason: rule.Classify(cause), problem: strings.ReplaceAll(cause.Error(), "\n", "; ")}
	if c.Status.Allocation == nil {
		return r
	}
	for _, res := range c.Status.Allocation.Devices.Results {
		if res.Driver != v1alpha1.DriverName {
			continue
		}
		status := resourceac.AllocatedDeviceStatus().WithDriver(res.Driver).WithPool(res.Pool).WithDevice(res.Device).
			WithConditions(condition(ConditionReady, metav1.ConditionFalse, r.reason, r.problem, metav1.Now()))
		if res.ShareID != nil {
			status.WithShareID(string(*res.ShareID))
		}
		r.devices = append(r.devices, status)
	}
	return r
}

// reservedPods returns the pods for which a claim is reserved.
func reservedPods(c *resourceapi.ResourceClaim) []claim.Pod {
	var pods []claim.Pod
	for _, r := range c.Status.ReservedFor {
		if r.APIGroup == "" && r.Resource == "pods" {
			pods = append(pods, claim.Pod{UID: string(r.UID), Name: r.Name})
		}
	}
	return pods
}

// assigned returns the functions of a claim in words.
func assigned(rec *journal.Record) string {
	words := make([]string, len(rec.Plan.Devices))
	for i, d := range rec.Plan.Devices {
		kind := "device"
		if t, _, err := device.ParseName(d.Name); err == nil {
			kind = string(t)
		}
		words[i] = fmt.Sprintf("%s %s", kind, d.Address)
	}
	return strings.Join(words, ", ")
}

// StatusSync restores the status of prepared claims after an outage of the API server or a restart of the plugin, by comparing the journal
// with the claims. It also keeps the links of VFs in the status up to date. It is not safe for concurrent use.
type StatusSync struct {
	Reporter   *Reporter
	Records    journal.Lister
	Attributes Attributes
	// Lost, which may be nil, reports whether a prepared claim has no active partition. StatusSync leaves the status of such a claim as it
	// is.
	Lost func(uid string) bool

	// current maps the UIDs of claims with a correct status to the preparation and the links that the status shows.
	current map[types.UID]string
	// problem was logged last.
	problem string
}

// Look reads the prepared claims whose status may be wrong, and reports those whose status is wrong. If the API server does not answer, the
// next Look continues.
func (s *StatusSync) Look(ctx context.Context) {
	records, _ := s.Records.List() // a metric counts unreadable records
	told, away := map[types.UID]string{}, error(nil)
	uplink := s.Reporter.config.Uplink.once()
	for _, rec := range records {
		uid := types.UID(rec.Plan.Claim.UID)
		if rec.Kind != journal.Claim || rec.State != journal.Prepared || s.Lost != nil && s.Lost(rec.ID()) {
			continue
		}
		links := uplink.links(ctx, rec)
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

// check reads one claim. It reports the claim again if its status does not show the preparation, or the links of its VFs, or if the status
// shows the loss of a partition that the claim has again. check skips a claim that no longer exists, and keeps the status of a later
// refusal.
func (s *StatusSync) check(ctx context.Context, rec *journal.Record, links map[pci.Address]vfLink) (right bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, RequestLimit)
	defer cancel()
	ref := rec.Plan.Claim
	c, err := s.Reporter.config.Client.ResourceV1().ResourceClaims(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, err
	case string(c.UID) != ref.UID:
		return true, nil
	case showsPrepared(c, rec) && !showsLost(c, rec) && (!isReady(c, rec) || showsLinks(c, rec, links)):
		return true, nil
	}
	s.Reporter.enqueue(preparedReport(c, rec, s.Attributes, links, s.Reporter.anchor()))
	return false, nil
}

// log logs once why claims could not be read.
func (s *StatusSync) log(ctx context.Context, err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != s.problem && ctx.Err() == nil {
		s.Reporter.config.Log.WarnContext(ctx, "the status of prepared claims is unknown; will try again", slog.Any("err", err))
	}
	s.problem = problem
}

// showsPrepared reports whether a claim's status has a report on each of its devices from after its preparation.
func showsPrepared(c *resourceapi.ResourceClaim, rec *journal.Record) bool {
	since, err := time.Parse(time.RFC3339, rec.Since)
	if err != nil {
		since = time.Time{} // any status will do
	}
	for _, parts := range rec.Plan.Allocated() {
		ready := findReady(c, parts[0].Pool, parts[0].Published())
		if ready == nil || ready.LastTransitionTime.Time.Before(since) {
			return false
		}
	}
	return true
}

// isReady reports whether a claim's status says that each of its devices is ready.
func isReady(c *resourceapi.ResourceClaim, rec *journal.Record) bool {
	for _, parts := range rec.Plan.Allocated() {
		if ready := findReady(c, parts[0].Pool, parts[0].Published()); ready == nil || ready.Status != metav1.ConditionTrue {
			return false
		}
	}
	return true
}

// showsLost reports whether a claim's status says that one of its partitions is not active.
func showsLost(c *resourceapi.ResourceClaim, rec *journal.Record) bool {
	return slices.ContainsFunc(rec.Plan.Allocated(), func(parts []plan.Device) bool {
		ready := findReady(c, parts[0].Pool, parts[0].Published())
		return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == string(rule.PartitionNotActivated)
	})
}

// findReady returns the condition Ready of one of our devices; nil if there is none.
func findReady(c *resourceapi.ResourceClaim, pool, name string) *metav1.Condition {
	return meta.FindStatusCondition(listConditions(c, pool, name), ConditionReady)
}

// listConditions returns the conditions of one of our devices.
func listConditions(c *resourceapi.ResourceClaim, pool, name string) []metav1.Condition {
	for i := range c.Status.Devices {
		d := &c.Status.Devices[i]
		if d.Driver == v1alpha1.DriverName && d.Pool == pool && d.Device == name {
			return d.Conditions
		}
	}
	return nil
}

// pending reports whether a report on the claim is queued.
func (r *Reporter) pending(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.latest[uid] != nil
}
