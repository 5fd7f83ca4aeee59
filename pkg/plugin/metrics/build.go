package metrics

import (
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
)

// Build identifies a build of the plugin.
type Build struct{ Version, Revision, GoVersion string }

// ReadBuild returns what the Go toolchain recorded in the running program.
func ReadBuild() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Build{Version: "unknown"}
	}
	b := Build{Version: info.Main.Version, GoVersion: info.GoVersion}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Revision = s.Value
		}
	}
	return b
}

// ShowBuild adds a gauge with the build in its labels. Call it once.
func (m *Metrics) ShowBuild(b Build) {
	m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kata_vfio_build_info", Help: "1, with the plugin's version, Git revision and Go version as labels.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": b.GoVersion},
	}, func() float64 { return 1 }))
}
