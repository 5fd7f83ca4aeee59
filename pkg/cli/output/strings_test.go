package output_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// TestEncodeRewritesStringsOnly: in each of several documents, with each string's path; other input stays unchanged.
func TestEncodeRewritesStringsOnly(t *testing.T) {
	const docs = "{ \"b\" : {\"k\": [\"x\\n\", \"y\", {\"z\":\"q\"}, \"r\"]}, \"a\":1.50 }\n[\"s\"]\n{\"u\": tail"
	var seen, keys []string
	got := string(output.RewriteStrings([]byte(docs), func(s *output.String) string {
		seen = append(seen, s.Parent+"."+s.Key+"="+strings.TrimSpace(s.Text)+"<"+strings.TrimSpace(s.Before))
		if s.Text == "y" {
			return "\"\n"
		}
		return s.Text
	}, func(key string) { keys = append(keys, key) }))
	if want := strings.Replace(docs, `"y"`, `"\"\n"`, 1); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got, want := strings.Join(seen, " "), "b.k=x< b.k=y<x k.z=q< b.k=r< .=s<"; got != want {
		t.Errorf("strings: %s, want %s", got, want)
	}
	if got := strings.Join(keys, ""); got != "bkzau" {
		t.Errorf("keys: %s", got)
	}
}

// TestStringsBehindALargeNumberAreRewritten: JSON has no largest number, and float64 has one.
func TestStringsBehindALargeNumberAreRewritten(t *testing.T) {
	const doc = `{"n": 1e999, "m": [-1e999, "x"], "token": "x"}`
	got := string(output.RewriteStrings([]byte(doc), func(*output.String) string { return "-" }, func(string) {}))
	if want := strings.ReplaceAll(doc, `"x"`, `"-"`); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// FuzzRewriteStrings: strings that are not rewritten are unchanged, and JSON stays JSON.
func FuzzRewriteStrings(f *testing.F) {
	f.Add([]byte(`{"a":["b",{"c":"d"}],"e":null}`))
	f.Add([]byte(`"\ud800"`))
	f.Add([]byte(`{"n":1e999,"s":"t"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		none := func(string) {}
		if got := output.RewriteStrings(data, func(s *output.String) string { return s.Text }, none); string(got) != string(data) {
			t.Errorf("%q became %q", data, got)
		}
		if got := output.RewriteStrings(data, func(*output.String) string { return "-\"\n" }, none); json.Valid(data) && !json.Valid(got) {
			t.Errorf("%q became %q", data, got)
		}
	})
}
