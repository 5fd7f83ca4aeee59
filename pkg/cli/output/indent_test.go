package output_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// FuzzJSONIsIndentedAsByTheLibrary holds the layout against the one of encoding/json.
func FuzzJSONIsIndentedAsByTheLibrary(f *testing.F) {
	for _, document := range []string{
		`null`, `"a"`, `[]`, `{}`, `[[],{}]`, `{"a":[1,-2.5e3,true,null],"b":{"c":"d"}}`,
		`{"a\\":"\\\"[{,:}]\\","":["\"",""]}`, `{"é":"\u2028 …"}`, `[[[[{"a":[]}]]]]`,
	} {
		f.Add(document)
	}
	f.Fuzz(func(t *testing.T, document string) {
		var v any
		if json.Unmarshal([]byte(document), &v) != nil {
			return
		}
		var line, got strings.Builder
		var want bytes.Buffer
		if err := output.JSONLine(&line, "it", v); err != nil {
			t.Fatal(err)
		}
		if err := output.JSON(&got, "it", v); err != nil {
			t.Fatal(err)
		}
		if err := json.Indent(&want, []byte(line.String()), "", "  "); err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() {
			t.Errorf("got\n%s\nwant\n%s", &got, &want)
		}
	})
}
