//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/dynamic-resource-allocation/api/metadata"
	metadatav1beta1 "k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
)

// checkMetadata reads in a pod's container what the kubelet mounts there of its GPU, by the claim of [gpuOfTemplate]: an object for each version
// of the API, with the same address. A program takes the first version that it knows.
func (s *site) checkMetadata(ctx context.Context, pod, address string) error {
	file := metadata.ResourceClaimTemplateFilePath(driver, "gpu", "gpu")
	text, err := s.plane.Kubectl(ctx, "exec", "--namespace", tenant, pod, "--", "/container", "print", file)
	if err != nil {
		return fmt.Errorf("read the device's metadata in the container: %w", err)
	}
	var versions []string
	for decoder := json.NewDecoder(bytes.NewReader(text)); ; {
		// The versions have the same fields.
		var object metadatav1beta1.DeviceMetadata
		if err := decoder.Decode(&object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("parse %s: %w\n%s", file, err, text)
		}
		versions = append(versions, object.APIVersion)
		if len(object.Requests) != 1 || len(object.Requests[0].Devices) != 1 {
			return fmt.Errorf("%s has other devices than one in %s:\n%s", file, object.APIVersion, text)
		}
		if id := object.Requests[0].Devices[0].Attributes["resource.kubernetes.io/pciBusID"].StringValue; id == nil || *id != address {
			return fmt.Errorf("%s does not have %s in %s:\n%s", file, address, object.APIVersion, text)
		}
	}
	if want := []string{"metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1"}; !slices.Equal(versions, want) {
		return fmt.Errorf("%s has the versions %v, want %v", file, versions, want)
	}
	return nil
}
