package sanitize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"
)

// Parse reads a result. It refuses a document with unknown, repeated or missing fields, with anything after it, or whose
// parts contradict each other: a sanitizer that writes one of those has not done what its result says.
func Parse(message []byte) (*Result, error) {
	if err := checkText(message); err != nil {
		return nil, err
	}
	// Of a document of another kind, name the kind, not the fields that a Result does not have.
	if err := checkKind(message); err != nil {
		return nil, err
	}
	result := &Result{}
	// encoding/json accepts names in any case, and lets the last of repeated fields win without an error.
	strict, err := kjson.UnmarshalStrict(message, result)
	if err != nil {
		return nil, fmt.Errorf("parse the result: %s", clip(err.Error()))
	}
	if len(strict) > 0 {
		return nil, fmt.Errorf("parse the result: %s", clip(strict[0].Error()))
	}
	if err := checkPresence(message); err != nil {
		return nil, err
	}
	if err := result.validate(); err != nil {
		return nil, err
	}
	return result, nil
}

// checkText refuses a message that is not text, or is too long.
func checkText(message []byte) error {
	switch {
	case len(bytes.TrimSpace(message)) == 0:
		return errors.New("the result is empty: the sanitizer wrote no termination message")
	case len(message) > MaxMessage:
		return fmt.Errorf("the result has %d bytes, more than the %d of a termination message", len(message), MaxMessage)
	case !utf8.Valid(message):
		return errors.New("the result is not UTF-8")
	case bytes.IndexByte(message, 0) >= 0:
		return errors.New("the result has NUL bytes")
	}
	return nil
}

// checkKind refuses a document of another version or kind.
func checkKind(message []byte) error {
	var meta struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(message, &meta); err != nil {
		return fmt.Errorf("parse the result: %s", clip(err.Error()))
	}
	if meta.APIVersion != APIVersion || meta.Kind != Kind {
		return fmt.Errorf("the result is a %s of %s, want a %s of %s", show(meta.Kind), show(meta.APIVersion), Kind, APIVersion)
	}
	return nil
}

// checkPresence refuses a document that lacks a field whose absence can't be told from its zero value once it is decoded.
func checkPresence(message []byte) error {
	var fields struct {
		Checks []map[string]json.RawMessage `json:"checks"`
	}
	if err := json.Unmarshal(message, &fields); err != nil {
		return fmt.Errorf("parse the result's checks: %s", clip(err.Error()))
	}
	for i, check := range fields.Checks {
		for _, name := range []string{"bytes", "seconds"} {
			if value, ok := check[name]; !ok || string(value) == "null" {
				return fmt.Errorf("checks[%d].%s is missing", i, name)
			}
		}
	}
	return nil
}

// Encode returns the document, after the checks of [Parse].
func (r *Result) Encode() ([]byte, error) {
	document, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	if _, err := Parse(document); err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	return document, nil
}
