package metrics

import (
	"iter"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/maintain"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// nodeMetrics count the node's devices, orphans and missing VFs.
type nodeMetrics struct {
	devices *prometheus.GaugeVec
	gpus    *prometheus.GaugeVec
	orphans *prometheus.GaugeVec
	lost    *prometheus.GaugeVec
	repairs *prometheus.CounterVec
	lacking *prometheus.GaugeVec
	warm    *prometheus.GaugeVec
	wanted  *prometheus.GaugeVec
}

func newNodeMetrics(r *prometheus.Registry) nodeMetrics {
	m := nodeMetrics{
		devices: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kata_vfio_devices",
			Help: "Published devices by type (gpu, pf, vf, gpuvf, nvme, accelerator, other) and health (healthy, unhealthy).",
		}, []string{"type", "health"}),
		gpus: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kata_vfio_gpus",
			Help: "Published GPUs by model (vendor and device ID where pci.ids does not name it) and state: claimed, or of the others free and tainted.",
		}, []string{"model", "state"}),
		orphans: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kata_vfio_orphans",
			Help: "Orphans on the node that are left alone, by kind: claim (its ResourceClaim no longer exists), spec (a CDI spec without a record), binding (a function on VFIO without a record).",
		}, []string{"kind"}),
		lost: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kata_vfio_lost_device_seconds",
			Help: "For how long a claim has kept a device on the node that it no longer has at the API server, by device, claim_namespace and claim. Its VM runs, or its release has not ended.",
		}, []string{"device", "claim_namespace", "claim"}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kata_vfio_repairs_total", Help: "Repairs of orphans by kind (claim, spec, binding) and result (ok, error).",
		}, []string{"kind", "result"}),
		lacking: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kata_vfio_vfs_lacking",
			Help: "VFs that the node's config wants of a PF, as it names the PF, and that could not be made yet; the plugin's log says why.",
		}, []string{"pf"}),
		warm: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kata_vfio_warm_devices",
			Help: "Free devices that are kept on VFIO after a proven reset for the next claims, by rule of the node config.",
		}, []string{"rule"}),
		wanted: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kata_vfio_warm_devices_wanted", Help: "How many such devices the rule wants; the plugin's log says why one is not warm.",
		}, []string{"rule"}),
	}
	r.MustRegister(m.devices, m.gpus, m.orphans, m.lost, m.repairs, m.lacking, m.warm, m.wanted)
	return m
}

// Device is a published device with the labels by which it is counted.
type Device struct {
	Type    device.Type
	Healthy bool
}

// GPU is a published GPU with what it is counted by.
type GPU struct {
	// Model is the GPU's model. It has few values, because a node has few kinds of cards.
	Model string
	// Claimed says that a claim has the GPU, and Tainted that no claim without tolerations can get it.
	Claimed, Tainted bool
}

// state returns the state under which the GPU is counted. Claimed wins over tainted, because a taint on a claimed GPU keeps no claim
// waiting.
func (g GPU) state() string {
	switch {
	case g.Claimed:
		return "claimed"
	case g.Tainted:
		return "tainted"
	}
	return "free"
}

// ObserveDevices counts the published devices, and replaces the former counts.
func (m *Metrics) ObserveDevices(devices []Device) {
	m.node.devices.Reset()
	for _, t := range append(device.Types(), device.PairType, device.PartitionType) {
		m.node.devices.WithLabelValues(string(t), "healthy").Set(0)
		m.node.devices.WithLabelValues(string(t), "unhealthy").Set(0)
	}
	for _, d := range devices {
		health := "unhealthy"
		if d.Healthy {
			health = "healthy"
		}
		m.node.devices.WithLabelValues(string(d.Type), health).Inc()
	}
}

// ObserveGPUs counts the published GPUs, and replaces the former counts.
func (m *Metrics) ObserveGPUs(gpus iter.Seq[GPU]) {
	m.node.gpus.Reset()
	for g := range gpus {
		// Each state of a model has a series, so that the last free GPU leaves a 0 and not a gap.
		for _, state := range []string{"free", "claimed", "tainted"} {
			m.node.gpus.WithLabelValues(g.Model, state).Add(0)
		}
		m.node.gpus.WithLabelValues(g.Model, g.state()).Inc()
	}
}

// ObserveOrphans sets the number of orphans of a kind that are not repaired.
func (m *Metrics) ObserveOrphans(kind string, count int) {
	m.node.orphans.WithLabelValues(kind).Set(float64(count))
}

// LostDevice is a device that a claim still has on the node, but no longer at the API server.
type LostDevice struct {
	Device string
	// Namespace and Claim are the claim's; empty if the metrics must not name tenants.
	Namespace, Claim string
	// For is the time since the loss was first seen.
	For time.Duration
}

// ObserveLost sets the lost devices, and replaces the former ones.
func (m *Metrics) ObserveLost(devices []LostDevice) {
	m.node.lost.Reset()
	for i := range devices {
		d := &devices[i]
		m.node.lost.WithLabelValues(d.Device, d.Namespace, d.Claim).Set(d.For.Seconds())
	}
}

// ObserveRepair counts one attempt to repair an orphan.
func (m *Metrics) ObserveRepair(kind string, err error) {
	m.node.repairs.WithLabelValues(kind, resultLabel(err)).Inc()
}

// ObserveProvisions sets, for each rule of the node config, how many VFs are missing because the rule was refused, or
// may be missing because the change failed.
func (m *Metrics) ObserveProvisions(all []plan.Provision) {
	for i := range all {
		p, lacking := &all[i], 0
		switch {
		case p.Failed: // a change removes the former VFs first
			lacking = p.Want
		case p.Refused != "":
			lacking = max(0, p.Want-p.Have)
		}
		m.node.lacking.WithLabelValues(p.Rule).Set(float64(lacking))
	}
}

// ObserveWarm sets how many devices are warm, and how many the rules of the node config want to be.
func (m *Metrics) ObserveWarm(pools []maintain.WarmPool) {
	for i := range pools {
		m.node.warm.WithLabelValues(pools[i].Rule).Set(float64(len(pools[i].Ready)))
		m.node.wanted.WithLabelValues(pools[i].Rule).Set(float64(pools[i].Want))
	}
}

// WatchDrains adds a gauge for each function that is drained. The states are read for each scrape.
// Call it once.
func (m *Metrics) WatchDrains(states func() map[pci.Address]rule.Code) {
	m.Registry.MustRegister(&drainCollector{states: states, desc: prometheus.NewDesc(
		"kata_vfio_drained", "1 for each drained function, by state (Draining, Drained).", []string{"address", "state"}, nil,
	)})
}

type drainCollector struct {
	states func() map[pci.Address]rule.Code
	desc   *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *drainCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector].
func (c *drainCollector) Collect(ch chan<- prometheus.Metric) {
	for a, state := range c.states() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, 1, a.String(), string(state))
	}
}

// Disks measures the free space on the disks of the plugin's state; [journal.Reserves] implements it.
type Disks interface {
	Space() []journal.Space
}

// WatchDisks adds a gauge of the free bytes on the disks, which are measured for each scrape. Call it once.
func (m *Metrics) WatchDisks(disks Disks) {
	m.Registry.MustRegister(&diskCollector{disks: disks, desc: prometheus.NewDesc("kata_vfio_state_free_bytes",
		"Bytes that are free on the disks of the plugin's journal and ledger. Claims are refused when one is full.", []string{"directory"}, nil)})
}

type diskCollector struct {
	disks Disks
	desc  *prometheus.Desc
}

// Describe implements [prometheus.Collector].
func (c *diskCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements [prometheus.Collector]. An unknown number is NaN, with which no alert's comparison is true.
func (c *diskCollector) Collect(ch chan<- prometheus.Metric) {
	for _, disk := range c.disks.Space() {
		value := math.NaN()
		if disk.Err == nil {
			value = float64(disk.Free)
		}
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, value, disk.Dir)
	}
}
