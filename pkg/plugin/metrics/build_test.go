package metrics_test

import (
	"runtime"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/metrics/metricstest"
)

func TestBuildIsServed(t *testing.T) {
	m := empty()
	m.ShowBuild(metrics.Build{Version: "v1.2.3", Revision: "abc", GoVersion: "go1.26"})
	if got, _ := metricstest.Gauges(t, m.Registry, "kata_vfio_build_info"); got["go1.26 abc v1.2.3"] != 1 {
		t.Errorf("build info is %v", got)
	}
	if got := metrics.ReadBuild().GoVersion; got != runtime.Version() {
		t.Errorf("this build is of %q, want %q", got, runtime.Version())
	}
}
