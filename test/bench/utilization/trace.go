package utilization

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// day is the period in which arrivals and the share of VM jobs vary.
const day = 24 * time.Hour

// Job asks for GPUs for some time.
type Job struct {
	Arrival, Duration time.Duration
	GPUs              int
	// VM says that the job must run in a VM.
	VM bool
	// Tenant is the number of the tenant that the job belongs to.
	Tenant int
}

// gpuTime is the job's duration for each of its GPUs.
func (j *Job) gpuTime() time.Duration { return j.Duration * time.Duration(j.GPUs) }

// Workload describes a trace.
type Workload struct {
	Seed uint64
	// Window is the time in which jobs arrive.
	Window time.Duration
	// GPUs is the size of the cluster, and Load the GPU time that jobs ask for, compared with what the cluster has.
	GPUs int
	Load float64
	// VMShare is the share of VM jobs, as a mean over the day. Swing says how much it varies over the day: at 0 it is constant, at 1
	// it varies as a sine as far as a share can, so that at one hour no job is a VM job, or all are.
	VMShare, Swing float64
}

// Generate returns the trace's jobs in the order of their arrival. Two workloads that differ only in the VM jobs have the same
// arrivals, sizes and durations.
func Generate(w Workload) []Job {
	arrivals, kinds := rand.New(rand.NewPCG(w.Seed, 1)), rand.New(rand.NewPCG(w.Seed, 2))
	hours, all := byHour(), sizes()
	most := slices.Max(hours[:])
	mean := w.Window.Seconds() / w.jobs()
	var jobs []Job
	for at := 0.0; ; {
		at += arrivals.ExpFloat64() * mean / most
		arrival := time.Duration(at * float64(time.Second))
		if arrival >= w.Window {
			return jobs
		}
		if hour := arrival % day / time.Hour; arrivals.Float64()*most > hours[hour] {
			continue
		}
		s := pick(all, arrivals.IntN(phillyJobs))
		jobs = append(jobs, Job{
			Arrival: arrival, Duration: s.durations.at(arrivals.Float64()), GPUs: s.gpus, VM: kinds.Float64() < w.vmShare(arrival),
		})
	}
}

// jobs is the expected number of jobs.
func (w *Workload) jobs() float64 {
	return w.Load * float64(w.GPUs) * w.Window.Seconds() / meanGPUSeconds()
}

// vmShare is the share of VM jobs among those that arrive then.
func (w *Workload) vmShare(at time.Duration) float64 {
	sine := math.Sin(2 * math.Pi * float64(at%day) / float64(day))
	return w.VMShare + w.Swing*min(w.VMShare, 1-w.VMShare)*sine
}

// pick returns the size of the i-th of the trace's jobs, ordered by size.
func pick(all []size, i int) *size {
	for k := range all {
		if i < all[k].jobs {
			return &all[k]
		}
		i -= all[k].jobs
	}
	return &all[len(all)-1]
}
