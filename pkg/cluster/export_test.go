package cluster

// Passes returns how often all claims, devices, pods or pools were asked for.
func (c *Cluster) Passes() int64 { return c.passes.Load() }
