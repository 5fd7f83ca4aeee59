// Package monitoring holds the tests of what the chart brings for Prometheus and
// Grafana (deploy/helm/kata-vfio/monitoring), by Prometheus' own code: each alert
// fires on the series that it is for and on no good ones, and each query of the
// dashboard has an answer from what the plugin serves.
//
// It is a module of its own since the project's must not grow by Prometheus'
// dependencies. Run it with -count=1: the go command keeps results without regard
// to files outside of the module, which the chart's are.
package monitoring
