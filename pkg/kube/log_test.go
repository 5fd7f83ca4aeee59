package kube_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/kata-vfio/kata-vfio/pkg/kube"
)

// TestLibrariesLogAtTheLogsLevel: klog's output has the handler, format and level of the program's.
func TestLibrariesLogAtTheLogsLevel(t *testing.T) {
	t.Cleanup(klog.ClearLogger)
	for level, want := range map[slog.Level]string{
		slog.LevelDebug: "detail plain failed", slog.LevelInfo: "plain failed", slog.LevelError: "failed",
	} {
		var out bytes.Buffer
		if err := kube.LogLibraries(t.Context(), slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: level}))); err != nil {
			t.Fatal(err)
		}
		klog.V(4).InfoS("detail")
		klog.V(5).InfoS("never")
		klog.InfoS("plain")
		klog.ErrorS(errors.New("x"), "failed")
		var got []string
		for _, word := range []string{"detail", "never", "plain", "failed"} {
			if strings.Contains(out.String(), `"msg":"`+word+`"`) {
				got = append(got, word)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("at %v: %v, want %s:\n%s", level, got, want, &out)
		}
		if !strings.Contains(out.String(), `"level":"ERROR","msg":"failed"`) {
			t.Errorf("at %v, the error has another level: %s", level, &out)
		}
	}
}
