package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Share is a number of devices, or a percentage of them: 2 or "25%" in JSON.
type Share struct {
	// Amount is the number, or the percentage from 0 to 100.
	Amount  int
	Percent bool
}

// Of returns the share's number of n devices: at most n, and a percentage rounded up.
func (s Share) Of(n int) int {
	if s.Percent {
		return (n*s.Amount + 99) / 100
	}
	return min(s.Amount, n)
}

// String returns the share as a config has it.
func (s Share) String() string {
	if s.Percent {
		return strconv.Itoa(s.Amount) + "%"
	}
	return strconv.Itoa(s.Amount)
}

// MarshalJSON implements [json.Marshaler].
func (s Share) MarshalJSON() ([]byte, error) {
	if s.Percent {
		return json.Marshal(s.String())
	}
	return json.Marshal(s.Amount)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (s *Share) UnmarshalJSON(raw []byte) error {
	digits, percent := string(raw), false
	var text string
	if json.Unmarshal(raw, &text) == nil {
		digits, percent = strings.CutSuffix(text, "%")
		if !percent {
			digits = "" // a number is not quoted
		}
	}
	amount, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || percent && amount > 100 {
		return fmt.Errorf(`%s is neither a number of devices such as 2 nor a percentage such as "25%%"`, literal(raw))
	}
	*s = Share{Amount: int(amount), Percent: percent}
	return nil
}
