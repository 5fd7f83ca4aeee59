package output

import (
	"encoding/json"
	"fmt"
	"io"
)

// SARIF writes a SARIF 2.1.0 log as [JSON] does, without the empty arrays and objects that the library (go-sarif) writes for each absent
// property. The format requires only the list of results.
func SARIF(w io.Writer, log any) error {
	data, err := json.Marshal(log)
	if err != nil {
		return fmt.Errorf("encode report as SARIF: %w", err)
	}
	var all any
	if err := json.Unmarshal(data, &all); err != nil {
		return fmt.Errorf("encode report as SARIF: %w", err)
	}
	return JSON(w, "report as SARIF", pruned(all))
}

// pruned removes empty values from objects, and keeps an empty list of results.
func pruned(value any) any {
	switch v := value.(type) {
	case []any:
		for i := range v {
			v[i] = pruned(v[i])
		}
	case map[string]any:
		for name, inner := range v {
			v[name] = pruned(inner)
			// A run without results would mean that it did not look (SARIF 2.1.0, 3.14.23).
			if isEmpty(v[name]) && name != "results" {
				delete(v, name)
			}
		}
	}
	return value
}

func isEmpty(value any) bool {
	switch v := value.(type) {
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return value == nil
}
