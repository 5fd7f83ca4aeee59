// Package monitor judges the plugin's own node whenever it changes, by those
// checks that cost little (finding.Rule.Cheap), and keeps what fails: for taints
// and attributes of devices, for refusals of claims, for metrics, and for the
// ledger. `kata-vfio-audit node` asks the same checks, and all others.
package monitor
