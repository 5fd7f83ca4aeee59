package v1alpha1

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	yamlv2 "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

// YAMLToJSON converts a text that holds one YAML document (JSON is YAML) to
// JSON. A repeated key and a second document are errors. It is the reading
// half of everything that users hand us as a file; packages decode the JSON
// strictly.
func YAMLToJSON(text []byte) ([]byte, error) {
	if err := oneDocument(text); err != nil {
		return nil, err
	}
	return yaml.YAMLToJSONStrict(text)
}

// oneDocument returns an error unless text holds exactly one YAML document;
// empty ones after it, as a closing "---" makes, don't count. The conversion
// by itself would drop what follows the first in silence.
func oneDocument(text []byte) error {
	dec := yamlv2.NewDecoder(bytes.NewReader(text))
	for n := 0; ; n++ {
		var doc any
		err := dec.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF) && n == 0:
			return errors.New("the document is empty")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("parse YAML: %w", err)
		case n > 0 && doc != nil:
			return errors.New("more than one YAML document; want one")
		}
	}
}
