package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/e2e/node"
)

// shared is a pod that asks for a device without a VM.
const shared = `
apiVersion: v1
kind: Pod
metadata: {name: shared-kernel}
spec:
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
  containers: [{name: main, image: '` + node.PauseImage + `', imagePullPolicy: Never, resources: {claims: [{name: gpu}]}}]
`

// thief is a pod that takes the nodes of the host's devices past all claims.
const thief = `
apiVersion: v1
kind: Pod
metadata: {name: thief}
spec:
  volumes: [{name: vfio, hostPath: {path: /dev/vfio}}]
  containers: [{name: main, image: '` + node.PauseImage + `', imagePullPolicy: Never, volumeMounts: [{name: vfio, mountPath: /dev/vfio}]}]
`

// attacks tries two ways around the VM: one ends at the API server, the other, where no policy looks, at the node.
func (s *story) attacks(ctx context.Context) error {
	s.title("Attacks: a claim without a VM, and the host's device nodes without a claim")
	s.say("$ kubectl apply -f shared-kernel.yaml --namespace team-a")
	_, err := s.plane.KubectlInput(ctx, strings.NewReader(shared), "apply", "--namespace", "team-a", "-f", "-")
	if err == nil {
		return errors.New("the API server took a pod with a device and without a VM")
	}
	s.say("%s", refusal(err))
	s.say("\n$ kubectl apply -f thief.yaml --namespace default     # not a tenant's namespace: the policies do not apply here")
	if _, err := s.plane.KubectlInput(ctx, strings.NewReader(thief), "apply", "--namespace", "default", "-f", "-"); err != nil {
		return err
	}
	// A pod that is refused never has this condition; its event comes well before.
	err = s.show(ctx, "wait", "pod/thief", "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=CreateContainerError", "--timeout=60s")
	if err != nil {
		return err
	}
	if err := s.show(ctx, "get", "events", "--field-selector=involvedObject.name=thief,reason=MountNotAllowed", "-o", eventsView); err != nil {
		return err
	}
	return s.show(ctx, "delete", "pod", "thief", "--grace-period=0", "--force")
}

const eventsView = `jsonpath={range .items[*]}{.type} {.reason}: {.message}{"\n"}{end}`

// refusal is what the server said, without how kubectl was run.
func refusal(err error) string {
	text := err.Error()
	if _, said, found := strings.Cut(text, "Error from server"); found {
		return "Error from server" + strings.TrimRight(said, "\n")
	}
	return fmt.Sprint(err)
}
