package bench

import "testing"

// reportAim states a figure and, beside it, the most that it should be. Units sort, so that the two stand together.
func reportAim(b *testing.B, value float64, unit string, most float64) {
	b.Helper()
	b.ReportMetric(value, unit)
	b.ReportMetric(most, unit+"-aim")
}
