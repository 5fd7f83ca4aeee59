package main

import (
	"context"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// Limits of logs. maxLog is how many bytes of a container's log are kept, maxLogLines how many lines the kubelet is asked for,
// maxLogRead how many bytes of its answer are read, and maxLogs the number of logs. An answer has its newest lines at its end, so maxLogRead
// is more than maxLogLines lines of 16 KiB, the longest that container runtimes write.
const (
	maxLog      = 2 << 20
	maxLogLines = 20000
	maxLogRead  = 512 << 20
	maxLogs     = 1000
)

// logs adds the logs of kata-vfio's pods. For a container that restarted, it also adds the log from before. It notes logs that
// can't be read.
func (d *sysdump) logs(ctx context.Context, client lister, b *output.Bundle, mask *output.Mask, pods []*corev1.Pod, progress *output.Progress) {
	left := maxLogs
	for i, p := range pods {
		progress.Say("read logs of pod %d of %d: %s", i+1, len(pods), p.Name)
		for _, options := range d.podLogs(p) {
			if left--; left < 0 {
				b.Note(fmt.Sprintf("logs after the first %d are left out", maxLogs))
				return
			}
			name := path.Join("logs", p.Name, options.Container+".log")
			if options.Previous {
				name = path.Join("logs", p.Name, options.Container+".previous.log")
			}
			log, err := readLog(ctx, client, p, &options)
			if err != nil && len(log) == 0 {
				b.Note(fmt.Sprintf("%s could not be read: %v", name, err))
				if apierrors.IsForbidden(err) {
					break // so are the pod's other logs
				}
				continue
			}
			if err != nil {
				b.Note(fmt.Sprintf("%s could not be read to its end: %v", name, err))
			}
			mask.HideLogged(log)
			b.Add(name, log)
		}
	}
}

// podLogs are the logs of a pod.
func (d *sysdump) podLogs(p *corev1.Pod) []corev1.PodLogOptions {
	var all []corev1.PodLogOptions
	since, lines := int64(d.since.Seconds()), int64(maxLogLines)
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range statuses {
			// The kubelet cuts by lines before it sends.
			options := corev1.PodLogOptions{Container: statuses[i].Name, SinceSeconds: &since, TailLines: &lines, Timestamps: true}
			all = append(all, options)
			if statuses[i].RestartCount > 0 {
				options.Previous, options.SinceSeconds = true, nil // it may have ended long ago
				all = append(all, options)
			}
		}
	}
	return all
}

// readLog returns the end of a log. With an error, it returns the end of what was read.
func readLog(ctx context.Context, client lister, p *corev1.Pod, options *corev1.PodLogOptions) ([]byte, error) {
	answer, err := client.Logs(ctx, p.Namespace, p.Name, options)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Close() }()
	return readTail(answer, maxLog, maxLogRead)
}
