package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// stageEvery is the pause between two looks for ended stages. Without marks a look reads one directory that does not exist.
const stageEvery = 2 * time.Second

// SanitizedDevices decides ended stages; [maintain.Maintainer] implements it.
type SanitizedDevices interface {
	StageMarks() ([]journal.SanitizeMark, error)
	EndedStages() ([]journal.SanitizeMark, error)
	Accepted(mark *journal.SanitizeMark) (accepted, missing []sanitize.Measurement, err error)
	ConcludeStage(ctx context.Context, ended *journal.SanitizeMark, outcome sanitize.Outcome, image string) error
}

// StageWatch decides the sanitizing stages of a node by the pods that ran them. It does not decide in the kubelet's call that unprepares
// the stage's claim: the API server may not have the end of the pod yet then, and the call must not wait for it. It is not safe for
// concurrent use.
type StageWatch struct {
	Devices SanitizedDevices
	Client  kubernetes.Interface
	// Sanitizers are the cluster's profiles; nil if there are none.
	Sanitizers *v1alpha1.Sanitizers
	Reporter   *dra.Reporter
	Node       string
	Log        *slog.Logger
	Metrics    *metrics.Metrics
	// Changes is woken when devices must be published again.
	Changes dra.Waker

	seen   string // the marks of the last look
	logged string
}

// watchStages decides stages until ctx ends.
func (s *service) watchStages(ctx context.Context) error {
	return every(ctx, stageEvery, s.stages.Look)
}

// Look looks once. It logs an error once, and the next look tries again.
func (w *StageWatch) Look(ctx context.Context) {
	ended, err := w.Devices.EndedStages()
	for i := range ended {
		err = errors.Join(err, w.decide(ctx, &ended[i]))
	}
	err = errors.Join(err, w.follow())
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != w.logged && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "sanitizing stage not decided", slog.Any("err", err))
	}
	w.logged = text
}

// follow has the devices published again if the marks have changed. A command in another process may have changed them.
func (w *StageWatch) follow() error {
	marks, err := w.Devices.StageMarks()
	if err != nil {
		return err
	}
	now, err := json.Marshal(marks)
	if err != nil {
		return fmt.Errorf("compare the marks of sanitizing stages: %w", err)
	}
	if string(now) != w.seen {
		w.seen = string(now)
		w.Changes.Wake()
	}
	return nil
}

// decide decides one stage. It does nothing if the API server does not have the end of the pod yet.
func (w *StageWatch) decide(ctx context.Context, mark *journal.SanitizeMark) error {
	outcome, image, decided, err := w.outcome(ctx, mark)
	if err != nil || !decided {
		return err
	}
	if err := w.Devices.ConcludeStage(ctx, mark, outcome, image); err != nil {
		return fmt.Errorf("decide the sanitizing stage of %s: %w", mark.Address, err)
	}
	w.report(ctx, mark, outcome)
	return nil
}

// outcome reads the pod of a stage and decides by it. decided is false if the pod has not ended by the API server's status.
func (w *StageWatch) outcome(ctx context.Context, mark *journal.SanitizeMark) (outcome sanitize.Outcome, image string, decided bool, err error) {
	stage := mark.Stage
	profile, known := w.Sanitizers.Profile(stage.Profile)
	if !known {
		return sanitize.Outcome{Verdict: sanitize.Interrupted, Reason: fmt.Sprintf("its profile %q does not exist any more", stage.Profile)}, "", true, nil
	}
	pod, err := w.pod(ctx, stage)
	if err != nil {
		return sanitize.Outcome{}, "", false, err
	}
	if pod != nil && !hasEnded(pod) {
		return sanitize.Outcome{}, "", false, nil
	}
	// The profile may have changed since the pod was made. Such a pod proves nothing about the device, neither good nor bad.
	if why := differs(pod, &profile); why != "" {
		return sanitize.Outcome{Verdict: sanitize.Interrupted, Reason: "its pod is not what the profile says now: " + why}, "", true, nil
	}
	accepted, missing, err := w.Devices.Accepted(mark)
	if err != nil {
		return sanitize.Outcome{}, "", false, err
	}
	seen := observe(pod)
	return sanitize.Decide(sanitize.Expected{
		Digest: profile.Digest(), Device: sanitize.NewDevice(mark.Identity.Vendor, mark.Identity.Device),
		Firmware: sanitize.FirmwarePolicy(profile.Firmware), Accepted: accepted, Missing: missing,
	}, seen), digest(seen.ImageID), true, nil
}

// pod returns the pod of a stage; nil if it no longer exists.
func (w *StageWatch) pod(ctx context.Context, stage *journal.Stage) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, dra.RequestLimit)
	defer cancel()
	// The read is not from a cache: the decision about a device needs the current pod.
	pod, err := w.Client.CoreV1().Pods(stage.Claim.Namespace).Get(ctx, stage.Pod, metav1.GetOptions{})
	switch {
	// A pod of the same name that was made later did not run this stage.
	case apierrors.IsNotFound(err), err == nil && string(pod.UID) != stage.PodUID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("ask for pod %s/%s of a sanitizing stage: %w", stage.Claim.Namespace, stage.Pod, err)
	}
	return pod, nil
}

// hasEnded reports whether the pod's status is final, or will never become final because the pod is being deleted. The stage's claim is
// already unprepared then.
func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil
}

// differs returns how a pod differs from the pod that the controller makes for a profile; empty if it does not. The image's digest proves
// which program ran. This comparison proves what the program was asked to do: every image has some program that can print another program's
// answer.
func differs(pod *corev1.Pod, profile *v1alpha1.Sanitizer) string {
	if pod == nil {
		return ""
	}
	spec := &pod.Spec
	if len(spec.Containers) != 1 || len(spec.InitContainers)+len(spec.EphemeralContainers) > 0 {
		return "it has other containers than the sanitizer"
	}
	c := &spec.Containers[0]
	switch {
	case c.Image != profile.Image:
		return fmt.Sprintf("its image is %q", c.Image)
	case !slices.Equal(c.Command, profile.Command), !slices.Equal(c.Args, profile.Args):
		return fmt.Sprintf("it runs %q", slices.Concat(c.Command, c.Args))
	// A variable such as LD_PRELOAD or PATH can replace what the program runs.
	case len(c.Env)+len(c.EnvFrom) > 0:
		return "it sets environment variables"
	case len(spec.Volumes)+len(c.VolumeMounts)+len(c.VolumeDevices) > 0:
		return "it has volumes"
	case c.Lifecycle != nil:
		return "it has lifecycle hooks"
	case c.TerminationMessagePath != "" && c.TerminationMessagePath != corev1.TerminationMessagePathDefault:
		return fmt.Sprintf("its termination message is %q", c.TerminationMessagePath)
	}
	return ""
}

// observe returns the facts that the API server has of a pod and its one container.
func observe(pod *corev1.Pod) sanitize.Observed {
	if pod == nil {
		return sanitize.Observed{Deleted: true}
	}
	seen := sanitize.Observed{Deleted: pod.DeletionTimestamp != nil, Reason: pod.Status.Reason}
	if len(pod.Status.ContainerStatuses) != 1 {
		return seen
	}
	c := &pod.Status.ContainerStatuses[0]
	// The image ID identifies the image that the runtime has pulled and runs. The pod's spec has only the name that was requested.
	seen.ImageID, seen.Restarts = c.ImageID, int(c.RestartCount)
	if end := c.State.Terminated; end != nil {
		seen.Terminated, seen.ExitCode, seen.Message = true, int(end.ExitCode), end.Message
		if seen.Reason == "" {
			seen.Reason = end.Reason
		}
	}
	return seen
}

// digest returns the digest in an image's ID.
func digest(imageID string) string {
	_, digest, _ := strings.Cut(imageID, "@")
	return digest
}

// report logs a decided stage and counts it in the metrics. It records an Event of the node only if the device is not clean: devices are
// sanitized all the time.
func (w *StageWatch) report(ctx context.Context, mark *journal.SanitizeMark, outcome sanitize.Outcome) {
	since, err := time.Parse(time.RFC3339, mark.Stage.Since)
	if err == nil {
		w.Metrics.ObserveStage(mark.Stage.Profile, outcome.Verdict, time.Since(since))
	}
	about := []any{
		slog.Any("pci", mark.Address), slog.String("profile", mark.Stage.Profile), slog.String("pod", mark.Stage.Claim.Namespace+"/"+mark.Stage.Pod),
		slog.String("verdict", string(outcome.Verdict)), slog.String("why", outcome.Reason), slog.String("after", mark.Claim.UID),
	}
	if outcome.Verdict == sanitize.Clean {
		w.Log.InfoContext(ctx, "device sanitized", about...)
		return
	}
	w.Log.WarnContext(ctx, "device not sanitized", about...)
	w.Reporter.NodeEvent(w.Node, corev1.EventTypeWarning, stageCode(outcome), "Sanitize",
		fmt.Sprintf("the sanitizing stage of %s (profile %s, pod %s/%s) is %s: %s", mark.Address, mark.Stage.Profile, mark.Stage.Claim.Namespace, mark.Stage.Pod, outcome.Verdict, outcome.Reason))
}

// stageCode returns the code of a device whose stage did not prove it clean.
func stageCode(outcome sanitize.Outcome) rule.Code {
	switch {
	case outcome.Verdict == sanitize.Interrupted:
		return rule.NotSanitized // another stage runs, up to a limit that the device's taint shows
	case outcome.OnlyFirmware():
		return rule.FirmwareChanged
	}
	return rule.SanitizeFailed
}
