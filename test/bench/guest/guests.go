package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// compareGuests times VMs, each with one of the functions and an iommufd object, that start at once and end before
// their first instruction, against one.
func compareGuests(addresses []string) error {
	var alone, all []time.Duration
	for range opensRounds {
		took, err := startAll(addresses[:1])
		if err != nil {
			return err
		}
		alone = append(alone, took)
		if took, err = startAll(addresses); err != nil {
			return err
		}
		all = append(all, took)
	}
	one, many := median(alone), median(all)
	fmt.Printf("guests: medians of %d: one %v, %d at once %v\n", opensRounds, one.Round(time.Millisecond), len(addresses), many.Round(time.Millisecond))
	fmt.Printf("guests%s ratio all/one %.2f\n", os.Getenv("KERNEL"), float64(many)/float64(one))
	return nil
}

func startAll(addresses []string) (time.Duration, error) {
	errs := make([]error, len(addresses))
	begin := time.Now()
	atOnce(len(addresses), func(i int) {
		vm := exec.Command("qemu-system-x86_64", "-machine", "q35", "-m", "64", "-nodefaults", "-display", "none", "-S", "-monitor", "stdio",
			"-object", "iommufd,id=iommufd0", "-device", "vfio-pci,iommufd=iommufd0,host="+addresses[i])
		vm.Stdin = strings.NewReader("quit\n")
		if out, err := vm.CombinedOutput(); err != nil || strings.Contains(string(out), "vfio ") {
			errs[i] = fmt.Errorf("QEMU with %s: %w: %s", addresses[i], err, out)
		}
	})
	took := time.Since(begin)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return took, nil
}
