package utilization

import (
	"math"
	"time"
)

// The figures in this file describe Microsoft's Philly trace (Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN
// Training Workloads, USENIX ATC 2019; github.com/msr-fiddle/philly-traces). They were computed from the 82,247 jobs of
// 2017-09-04 to 2017-12-22 that petuum/adaptdl publishes as simulator/traces/philly.csv (commit de25dcc), with these changes:
//
//   - jobs of more than 32 GPUs are left out: 0.01% of the jobs, 0.1% of the GPU time
//   - 12 GPUs count as 16, and 24 as 32
//   - durations end at LongestJob: 0.3% of the jobs, which loses 13% of the GPU time
const phillyJobs = 82238

// LongestJob is the longest duration of a job.
const LongestJob = 7 * 24 * time.Hour

// size is a number of GPUs, the number of jobs in the trace that asked for it, and the durations of such jobs.
type size struct {
	gpus, jobs int
	durations  *durations
}

// sizes are those of the trace. The paper's figure 2 groups the durations in the same way.
func sizes() []size {
	one := &durations{1, 52, 62, 122, 1117, 2054, 2716, 5342, 8512, 19137, 68259, 135404, 266986, 604800, 604800}
	upTo4 := &durations{2, 11, 15, 21, 367, 14327, 45476, 99995, 166199, 233725, 467815, 604800, 604800, 604800, 604800}
	upTo8 := &durations{1, 125, 216, 1871, 23683, 105906, 173288, 242280, 352409, 525631, 604800, 604800, 604800, 604800, 604800}
	more := &durations{2, 41, 79, 589, 29737, 62913, 115792, 187899, 254372, 453676, 604800, 604800, 604800, 604800, 604800}
	return []size{
		{1, 76627, one}, {2, 1818, upTo4}, {4, 1870, upTo4}, {8, 1643, upTo8}, {16, 206, more}, {32, 74, more},
	}
}

// quantiles are where durations has its values.
func quantiles() [15]float64 {
	return [15]float64{0, .05, .1, .25, .5, .65, .75, .85, .9, .95, .98, .99, .995, .999, 1}
}

// durations are the seconds at the quantiles of a distribution. Between two of them the logarithm is linear.
type durations [15]float64

// at returns the duration at a quantile from 0 to 1.
func (d *durations) at(q float64) time.Duration {
	all := quantiles()
	for i := 1; i < len(all); i++ {
		if q > all[i] {
			continue
		}
		part := (q - all[i-1]) / (all[i] - all[i-1])
		return time.Duration(d[i-1] * math.Pow(d[i]/d[i-1], part) * float64(time.Second))
	}
	return LongestJob
}

// mean is the mean of the distribution, in seconds.
func (d *durations) mean() float64 {
	all, sum := quantiles(), 0.0
	for i := 1; i < len(all); i++ {
		piece := d[i]
		if d[i] != d[i-1] {
			piece = (d[i] - d[i-1]) / math.Log(d[i]/d[i-1])
		}
		sum += piece * (all[i] - all[i-1])
	}
	return sum
}

// meanGPUSeconds is a job's mean GPU time.
func meanGPUSeconds() float64 {
	sum := 0.0
	for _, s := range sizes() {
		sum += float64(s.jobs*s.gpus) * s.durations.mean() / phillyJobs
	}
	return sum
}

// byHour is how many jobs arrive in an hour of the day (UTC), compared with the mean: the medians of the trace's 105 days. The
// trace's bursts, when one user starts hundreds of jobs, are not in it.
func byHour() [24]float64 {
	return [24]float64{
		1.10, 0.93, 1.01, 1.01, 1.01, 1.10, 1.44, 1.44, 1.27, 1.10, 0.85, 0.76, 0.68, 0.76, 0.76, 0.85, 0.85, 1.01, 1.01, 0.93, 0.85, 1.01, 1.01, 1.27,
	}
}
