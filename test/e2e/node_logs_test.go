//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// logsDir is the variable that names the directory where the logs of each case are kept; without it none are.
const logsDir = "KATA_VFIO_LOGS"

// keptLogs are the node's services whose logs are kept. Kata logs to the last, which a node without it lacks.
func (s *site) keptLogs() []string {
	if s.kata == nil {
		return []string{"containerd", "kubelet"}
	}
	return []string{"containerd", "kubelet", "syslog"}
}

// logEnds are the lengths of the services' logs: where those of the case that begins now begin.
func (s *site) logEnds() map[string]int64 {
	ends := map[string]int64{}
	for _, service := range s.keptLogs() {
		if info, err := os.Stat(s.node.LogFile(service)); err == nil {
			ends[service] = info.Size()
		}
	}
	return ends
}

// keepLogs keeps what the services and the plugin have logged during a case that ends now, below the directory of its name.
func (s *site) keepLogs(ctx context.Context, name string, begins map[string]int64) error {
	if s.logs == "" {
		return nil
	}
	dir := filepath.Join(s.logs, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("keep the logs: %w", err)
	}
	var errs []error
	for _, service := range s.keptLogs() {
		errs = append(errs, copyFrom(s.node.LogFile(service), begins[service], filepath.Join(dir, service+".log")))
	}
	plugin, err := s.output(ctx, "tail -qc 200000 /var/log/pods/"+system+"_*/*/*.log")
	errs = append(errs, err, os.WriteFile(filepath.Join(dir, "plugin.log"), []byte(plugin+"\n"), 0o644))
	events := strings.Join([]string{s.events(ctx, tenant), s.events(ctx, trusted)}, "")
	errs = append(errs, os.WriteFile(filepath.Join(dir, "events.log"), []byte(events), 0o644))
	return errors.Join(errs...)
}

// copyFrom copies a file from an offset on.
func copyFrom(from string, offset int64, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close() // it was only read
	if _, err := source.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}
