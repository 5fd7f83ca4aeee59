package dra

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/go-logr/logr"
)

func TestCallsAreLoggedOnRequestOnly(t *testing.T) {
	for verbosity, want := range map[int]bool{-1: false, 0: true} {
		var log bytes.Buffer
		logger := logr.FromSlogHandler(slog.NewTextHandler(&log, nil))
		logger.V(Kubelet{GRPCVerbosity: verbosity}.verbosity()).Info("handling request") // as the helper does
		if got := log.Len() > 0; got != want {
			t.Errorf("verbosity %d: logged %t, want %t", verbosity, got, want)
		}
	}
}
