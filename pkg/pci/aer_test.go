package pci_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func TestParseFatalErrors(t *testing.T) {
	for text, want := range map[string]uint64{
		"Undefined 0\nDLP 2\nTOTAL_ERR_FATAL 2\n":    2,
		"TOTAL_ERR_FATAL 18446744073709551615":       1<<64 - 1,
		"DLP 3\n":                                    0,
		"TOTAL_ERR_FATAL many\n":                     0,
		"TOTAL_ERR_NONFATAL 4\nTOTAL_ERR_FATAL -1\n": 0,
		"": 0,
	} {
		if got, ok := pci.ParseFatalErrors(text); got != want || ok != (want > 0) {
			t.Errorf("%q: %d, %t; want %d", text, got, ok, want)
		}
	}
}
