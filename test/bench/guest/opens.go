package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// opensRounds is how often the functions are opened: alone, all at once, in turns.
const opensRounds = 7

// compareOpens times the opens of all functions at once against one, and their closes. An open resets the function.
func compareOpens(addresses []string) error {
	var alone, all, closes []time.Duration
	for range opensRounds {
		took, _, err := openAll(addresses[:1])
		if err != nil {
			return err
		}
		alone = append(alone, took)
		took, closed, err := openAll(addresses)
		if err != nil {
			return err
		}
		all, closes = append(all, took), append(closes, closed)
	}
	one, many := median(alone), median(all)
	fmt.Printf("opens: medians of %d: one %v, %d at once %v, their closes %v\n", opensRounds,
		one.Round(time.Millisecond), len(addresses), many.Round(time.Millisecond), median(closes).Round(time.Millisecond))
	fmt.Printf("opens%s ratio all/one %.2f\n", os.Getenv("KERNEL"), float64(many)/float64(one))
	return nil
}

// openAll opens functions at once, each with an iommufd object of its own as Kata does, and returns how long that took
// until the last was open, and how long the closes took.
func openAll(addresses []string) (opened, closed time.Duration, err error) {
	functions, errs := make([]*function, len(addresses)), make([]error, len(addresses))
	begin := time.Now()
	atOnce(len(addresses), func(i int) {
		object, err := newObject()
		if err == nil {
			functions[i], err = object.open(addresses[i])
		}
		errs[i] = err
	})
	opened = time.Since(begin)
	begin = time.Now()
	atOnce(len(addresses), func(i int) {
		if functions[i] != nil {
			functions[i].close()
			functions[i].object.close()
		}
	})
	closed = time.Since(begin)
	for _, err := range errs {
		if err != nil {
			return 0, 0, err
		}
	}
	return opened, closed, nil
}

// atOnce calls do for each number below n, all at once.
func atOnce(n int, do func(int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}
