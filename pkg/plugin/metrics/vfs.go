package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// countLimit bounds the time in which one scrape asks all PFs.
const countLimit = 5 * time.Second

// PFs count the traffic of their VFs; [vf.Policy] implements it.
type PFs interface {
	// Counters returns what a PF has counted for each of its VFs.
	Counters(ctx context.Context, pf pci.Address) ([]vf.Counters, error)
}

// WatchVFs adds the traffic of prepared claims' VFs, as their PFs count it: the counters in a VM
// are the guest's own. A VF whose counters are all zero is left out, because the kernel reports
// zeros for a driver without counters too (rtnl_fill_vfinfo in net/core/rtnetlink.c). The labels
// name claims and namespaces only if tenants is set. Call it once.
func (m *Metrics) WatchVFs(records journal.Lister, pfs PFs, tenants bool) {
	m.Registry.MustRegister(&vfCollector{records: records, pfs: pfs, tenants: tenants, descs: vfDescs(tenants)})
}

// vfDesc is one kind of counter.
type vfDesc struct {
	desc  *prometheus.Desc
	value func(*vf.Counters) uint64
}

func vfDescs(tenants bool) []vfDesc {
	labels := []string{"address", "pf"}
	if tenants {
		// Not "namespace": Prometheus' operator adds that of the plugin's pod.
		labels = append(labels, "claim_namespace", "claim")
	}
	counter := func(name, help string, value func(*vf.Counters) uint64) vfDesc {
		return vfDesc{value: value, desc: prometheus.NewDesc(
			"kata_vfio_vf_"+name+"_total", help+" by a claimed VF since it was enabled, as its PF counts.",
			labels, nil,
		)}
	}
	return []vfDesc{
		counter("receive_bytes", "Bytes received", func(c *vf.Counters) uint64 { return c.RxBytes }),
		counter("transmit_bytes", "Bytes sent", func(c *vf.Counters) uint64 { return c.TxBytes }),
		counter("receive_packets", "Packets received", func(c *vf.Counters) uint64 { return c.RxPackets }),
		counter("transmit_packets", "Packets sent", func(c *vf.Counters) uint64 { return c.TxPackets }),
		counter("receive_dropped", "Packets dropped on the way in", func(c *vf.Counters) uint64 { return c.RxDropped }),
		counter("transmit_dropped", "Packets dropped on the way out (with spoofed ones, if the driver counts them)", func(c *vf.Counters) uint64 { return c.TxDropped }),
	}
}

// vfCollector asks the PFs for each scrape.
type vfCollector struct {
	records journal.Lister
	pfs     PFs
	tenants bool // whether labels name claims and namespaces
	descs   []vfDesc
}

// Describe implements [prometheus.Collector].
func (c *vfCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d.desc
	}
}

// Collect implements [prometheus.Collector]. A PF that does not answer is left out, so that other
// metrics do not wait for it.
func (c *vfCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), countLimit)
	defer cancel()
	records, _ := c.records.List() // [recordCollector] counts unreadable records
	asked := map[pci.Address][]vf.Counters{}
	for _, rec := range records {
		if rec.State != journal.Prepared {
			continue
		}
		for i := range rec.Plan.Functions {
			fn := &rec.Plan.Functions[i]
			if fn.VF == nil {
				continue
			}
			counted, ok := asked[*fn.PF]
			if !ok {
				counted, _ = c.pfs.Counters(ctx, *fn.PF)
				asked[*fn.PF] = counted
			}
			if fn.VF.Index < len(counted) && counted[fn.VF.Index] != (vf.Counters{}) {
				c.send(ch, &counted[fn.VF.Index], c.labels(rec, fn)...)
			}
		}
	}
}

// labels returns the values for the labels of [vfDescs].
func (c *vfCollector) labels(rec *journal.Record, fn *plan.Function) []string {
	labels := []string{fn.Address.String(), fn.PF.String()}
	if c.tenants {
		labels = append(labels, rec.Plan.Claim.Namespace, rec.Plan.Claim.Name)
	}
	return labels
}

func (c *vfCollector) send(ch chan<- prometheus.Metric, counted *vf.Counters, labels ...string) {
	for _, d := range c.descs {
		ch <- prometheus.MustNewConstMetric(d.desc, prometheus.CounterValue, float64(d.value(counted)), labels...)
	}
}
