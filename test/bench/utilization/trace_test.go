package utilization

import (
	"math"
	"reflect"
	"slices"
	"testing"
	"time"
)

// long is a trace with enough jobs for its percentiles.
func long() Workload {
	return Workload{Seed: 1, Window: 1500 * day, GPUs: 256, Load: 0.8, VMShare: 0.3, Swing: 1}
}

// TestGenerateFollowsPhilly compares with figures of the published jobs themselves, not with those that the generator has.
func TestGenerateFollowsPhilly(t *testing.T) {
	jobs := Generate(long())
	gpuTime, byGPUs := 0.0, map[int][]time.Duration{}
	for i := range jobs {
		gpuTime += jobs[i].gpuTime().Seconds()
		byGPUs[jobs[i].GPUs] = append(byGPUs[jobs[i].GPUs], jobs[i].Duration)
	}
	near(t, "GPU time of a job, s", gpuTime/float64(len(jobs)), 37096, 0.03)
	near(t, "GPU time", gpuTime, 0.8*256*(1500*day).Seconds(), 0.05)
	for gpus, share := range map[int]float64{1: 0.93177, 2: 0.02211, 4: 0.02274, 8: 0.01998, 16: 0.00250, 32: 0.00090} {
		near(t, "share of jobs", float64(len(byGPUs[gpus]))/float64(len(jobs)), share, 0.1)
	}
	for gpus, want := range map[int][4]float64{ // mean, median, 75th and 90th percentile in seconds
		1: {7183, 1117, 2716, 8512}, 8: {110866, 23683, 173288, 352409},
	} {
		all := byGPUs[gpus]
		slices.Sort(all)
		sum := 0.0
		for _, d := range all {
			sum += d.Seconds()
		}
		near(t, "mean duration", sum/float64(len(all)), want[0], 0.05)
		for i, p := range []int{50, 75, 90} {
			near(t, "percentile of durations", percentile(all, p).Seconds(), want[i+1], 0.1)
		}
		if longest := all[len(all)-1]; longest > LongestJob {
			t.Errorf("a job of %d GPUs takes %v", gpus, longest)
		}
	}
}

func TestGenerateFollowsHoursOfTheDay(t *testing.T) {
	jobs := Generate(long())
	var counts, vms [24]float64
	for i := range jobs {
		hour := jobs[i].Arrival % day / time.Hour
		counts[hour]++
		if jobs[i].VM {
			vms[hour]++
		}
	}
	near(t, "arrivals at 6 compared with 12", counts[6]/counts[12], 1.44/0.68, 0.05)
	near(t, "VM jobs at 6", vms[6]/counts[6], 0.6, 0.05)
	if share := vms[18] / counts[18]; share > 0.02 {
		t.Errorf("%.2f of the jobs at 18 are VM jobs, want next to none", share)
	}
}

func TestGenerateVMShare(t *testing.T) {
	w := long()
	w.Swing = 0
	for _, w.VMShare = range []float64{0, 0.3, 1} {
		jobs, vms := Generate(w), 0
		for i := range jobs {
			if jobs[i].VM {
				vms++
			}
		}
		near(t, "VM jobs", float64(vms)/float64(len(jobs)), w.VMShare, 0.02)
	}
}

func TestGenerateIsDeterministic(t *testing.T) {
	w := long()
	w.Window = 28 * day
	first := Generate(w)
	if !reflect.DeepEqual(first, Generate(w)) {
		t.Error("two traces of one seed differ")
	}
	if !slices.IsSortedFunc(first, func(a, b Job) int { return int(a.Arrival - b.Arrival) }) {
		t.Error("the jobs are not in the order of their arrival")
	}
	w.VMShare = 0.9
	others := Generate(w)
	for i := range first {
		first[i].VM, others[i].VM = false, false
	}
	if !reflect.DeepEqual(first, others) {
		t.Error("the share of VM jobs changes more than which jobs those are")
	}
	w.Seed++
	if next := Generate(w); next[0] == first[0] {
		t.Error("two seeds have the same first job")
	}
}

func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got-want) > part*math.Abs(want) {
		t.Errorf("%s: %.5g, want %.5g within %.0f%%", what, got, want, 100*part)
	}
}
