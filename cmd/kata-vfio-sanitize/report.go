package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
)

// report writes the result to the file, if one is named, and to stdout. It returns what it wrote: a result that does not
// fit into a termination message is written as Unknown.
func report(file string, stdout io.Writer, result *sanitize.Result) (*sanitize.Result, error) {
	document, err := result.Encode()
	if err != nil {
		result = &sanitize.Result{
			APIVersion: sanitize.APIVersion, Kind: sanitize.Kind, Verdict: sanitize.Unknown, Device: result.Device,
			Reason: sanitize.OneLine(fmt.Sprintf("the result was %s, and can't be reported: %v", result.Verdict, err)),
		}
		if document, err = result.Encode(); err != nil {
			return nil, err
		}
	}
	if file != "" {
		if err := write(file, document); err != nil {
			return nil, fmt.Errorf("write the result: %w; name another file with --result, or none (--result '') for stdout only", err)
		}
	}
	if _, err := fmt.Fprintf(stdout, "%s\n", document); err != nil {
		return nil, fmt.Errorf("write the result: %w", err)
	}
	return result, nil
}

// write replaces the content of a file in place: the kubelet mounts the termination log into the container, so that no
// other file can take its name.
func write(file string, content []byte) error {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
