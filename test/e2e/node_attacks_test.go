//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/e2e/node"
)

// attack is a pod that must not run, with an event on it that says why. It gets by the API server's policies: those for tenants do not
// look at the namespace of some, and the one for other pods sees neither the annotations of a Binding nor what a volume claim leads to.
type attack struct {
	name, namespace string
	// annotations come to the pod by its Binding.
	annotations string
	spec        string
	// objects are there before the pod.
	objects string
	// reason is the event's, text is in its message. Without a reason there is none.
	reason, text string
}

func attacks(heldNode, heldCDI string) []attack {
	const inVM, container = "runtimeClassName: kata-gpu", "containers: [{name: main, image: '" + node.PauseImage + "', imagePullPolicy: Never"
	plain := container + "}]"
	// A privileged pod has all nodes, and is refused for the first: with groups that of the holder's, otherwise iommufd's, which nobody has.
	privileged, first := "NodeOfOthersClaim", heldNode
	if strings.HasPrefix(heldNode, "/dev/vfio/devices/") {
		privileged, first = "NodeWithoutClaim", "/dev/iommu"
	}
	return []attack{
		{
			name: "shared-kernel", namespace: trusted, reason: "NoRuntimeClass", text: "has no runtimeClassName",
			spec: "resourceClaims: [{name: vf, resourceClaimTemplateName: vf}]\n" + plain,
		}, {
			name: "held-claim", namespace: tenant, reason: "SharedClaim", text: "it is reserved for holder and held-claim",
			spec: inVM + "\nresourceClaims: [" + gpuDirect + "]\n" + container + ", resources: {claims: [{name: gpu}]}}]",
		}, {
			// The scheduler waits for a claim of that name in the pod's own namespace, and says nothing.
			name: "others-claim", namespace: trusted,
			spec: inVM + "\nresourceClaims: [" + gpuDirect + "]\n" + plain,
		}, {
			name: "host-path", namespace: trusted, reason: "MountNotAllowed", text: "/dev/vfio",
			spec: "volumes: [{name: vfio, hostPath: {path: /dev/vfio}}]\n" + container + ", volumeMounts: [{name: vfio, mountPath: /dev/vfio}]}]",
		}, {
			name: "host-path-in-vm", namespace: trusted, reason: "MountNotAllowed", text: "/dev",
			spec:    inVM + "\nvolumes: [{name: dev, persistentVolumeClaim: {claimName: dev}}]\n" + container + ", volumeMounts: [{name: dev, mountPath: /host}]}]",
			objects: devVolume,
		}, {
			name: "block-device-node", namespace: trusted, reason: "MountNotAllowed", text: "what it mounts at /mnt is a block device node",
			spec: inVM + "\nvolumes: [{name: node, hostPath: {path: " + deviceNodes + "/block}}]\n" + container + ", volumeMounts: [{name: node, mountPath: /mnt}]}]",
		}, {
			name: "character-device-node", namespace: trusted, reason: "MountNotAllowed", text: "what it mounts at /mnt is a character device node",
			spec: inVM + "\nvolumes: [{name: node, hostPath: {path: " + deviceNodes + "/character}}]\n" + container + ", volumeMounts: [{name: node, mountPath: /mnt}]}]",
		}, {
			name: "privileged", namespace: trusted, reason: privileged, text: first,
			spec: container + ", securityContext: {privileged: true}}]",
		}, {
			name: "cdi-annotation", namespace: trusted, reason: "AnnotationNotAllowed", text: "cdi.k8s.io/mine",
			annotations: "cdi.k8s.io/mine: " + heldCDI, spec: plain,
		}, {
			name: "kata-annotation", namespace: trusted, reason: "AnnotationNotAllowed", text: "io.katacontainers.config.runtime.vfio_mode",
			annotations: "io.katacontainers.config.runtime.vfio_mode: vfio", spec: inVM + "\n" + plain,
		}, {
			name: "stale-spec", namespace: trusted, reason: "AnnotationNotAllowed", text: "cdi.k8s.io/old",
			annotations: "cdi.k8s.io/old: " + staleCDI, spec: plain,
		}, {
			name: "meddled-with", namespace: trusted, reason: "NodeOfOthersClaim", text: heldNode,
			annotations: "meddle: " + heldNode, spec: plain,
		},
	}
}

// staleCDI is the name of a device in a spec that nothing accounts for.
const staleCDI = "kata-vfio.dev/vfio=00000000-0000-0000-0000-000000000000-gpu-0"

// refusesAttacks tries to get at a device that a pod has, and at others.
func refusesAttacks(ctx context.Context, s *site) error {
	if err := s.apply(ctx, tenant, directClaim+vmPod("holder", gpuDirect)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, nodeLimit, "holder"); err != nil {
		return err
	}
	heldNode, err := s.heldNode(ctx)
	if err != nil {
		return err
	}
	if err := errors.Join(s.makeStaleSpec(ctx, heldNode), s.makeDeviceNodes(ctx)); err != nil {
		return err
	}
	if err := s.apply(ctx, trusted, templates); err != nil {
		return err
	}
	if err := s.node.StartService(meddler, path.Join(node.Dir, "bin", meddler)); err != nil {
		return err
	}
	atATime := 4 // the kubelet tries each again and again, and a dozen at a time keep the machine from anything else
	if s.kata != nil {
		atATime = 1 // each boots a VM, and two at a time take longer than Kata waits
	}
	errs := []error{s.refusedInTurns(ctx, attacks(heldNode, staleCDI), atATime), s.socketIsRoots(ctx)}
	errs = append(errs, s.node.StopService(ctx, meddler))
	_, err = s.output(ctx, "rm "+staleSpec+"; umount -l "+deviceNodes+" && rmdir "+deviceNodes)
	return errors.Join(append(errs, err, s.awaitRunning(ctx, nodeLimit, "holder"))...)
}

// heldNode is the VFIO node of the only device that a claim has: its own, or that of its group.
func (s *site) heldNode(ctx context.Context) (string, error) {
	held, err := s.output(ctx, `sed -n 's/.*"path": *"\(\/dev\/vfio\/[^"]*[0-9]\)".*/\1/p' /var/run/cdi/kata-vfio.dev-vfio_*.json | head -n 1`)
	if err != nil || !strings.HasPrefix(held, "/dev/vfio/") {
		return "", fmt.Errorf("find the node of the held device: %q, %w", held, err)
	}
	return held, nil
}

// devVolume is a volume, and a claim for it, that show the node's /dev.
const devVolume = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: dev}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /dev}
  claimRef: {namespace: ` + trusted + `, name: dev}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: dev}
spec:
  storageClassName: ""
  volumeName: dev
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
`

// make makes the pod of an attack.
func (s *site) make(ctx context.Context, a attack) error {
	if a.objects != "" {
		if err := s.apply(ctx, a.namespace, a.objects); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  dnsPolicy: Default\n  automountServiceAccountToken: false\n  %s\n",
		a.name, strings.ReplaceAll(a.spec, "\n", "\n  "))
	if a.annotations == "" {
		return s.apply(ctx, a.namespace, text)
	}
	if err := s.apply(ctx, a.namespace, text+"  schedulerName: nobody\n"); err != nil {
		return err
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: a.name}, Target: corev1.ObjectReference{Kind: "Node", Name: s.node.Name()}}
	if err := yaml.UnmarshalStrict([]byte(a.annotations), &binding.Annotations); err != nil {
		return err
	}
	return s.client.CoreV1().Pods(a.namespace).Bind(ctx, binding, metav1.CreateOptions{})
}

// refusedInTurns tries some attacks at a time, and deletes their pods before the next.
func (s *site) refusedInTurns(ctx context.Context, attacks []attack, atATime int) error {
	var errs []error
	for some := range slices.Chunk(attacks, atATime) {
		errs = append(errs, s.allRefused(ctx, some))
		for _, a := range some {
			_, err := s.plane.Kubectl(ctx, "delete", "pod", a.name, "--namespace", a.namespace, "--grace-period=1")
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// allRefused makes all the pods and then waits for each one's event.
func (s *site) allRefused(ctx context.Context, attacks []attack) error {
	for _, a := range attacks {
		if err := s.make(ctx, a); err != nil {
			return fmt.Errorf("attack %s: %w", a.name, err)
		}
	}
	var errs []error
	for _, a := range attacks {
		var err error
		if a.reason != "" {
			err = s.awaitEvent(ctx, a.namespace, a.name, a.reason, a.text)
		}
		if err = errors.Join(err, s.neverStarted(ctx, a)); err != nil {
			errs = append(errs, fmt.Errorf("attack %s: %w", a.name, err))
		}
	}
	return errors.Join(errs...)
}

// neverStarted checks that no container of the pod has run.
func (s *site) neverStarted(ctx context.Context, a attack) error {
	got, err := s.client.CoreV1().Pods(a.namespace).Get(ctx, a.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range got.Status.ContainerStatuses {
		if c.State.Running != nil || c.LastTerminationState.Terminated != nil || c.State.Terminated != nil {
			return fmt.Errorf("its container ran: %+v", c)
		}
	}
	if got.Status.Phase != corev1.PodPending {
		return fmt.Errorf("the pod is %s: %s %s", got.Status.Phase, got.Status.Reason, got.Status.Message)
	}
	return nil
}

const staleSpec = "/var/run/cdi/stale.json"

// makeStaleSpec leaves a CDI spec of our kind that the plugin knows nothing of, for a device that a pod has.
func (s *site) makeStaleSpec(ctx context.Context, heldNode string) error {
	kind, device, _ := strings.Cut(staleCDI, "=")
	text := fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": %q, "devices": [{"name": %q, "containerEdits": {"deviceNodes": [{"path": %q}]}}]}`,
		kind, device, heldNode)
	_, err := s.output(ctx, "echo '"+text+"' >"+staleSpec)
	return err
}

// deviceNodes is a file system of its own on the node, from which no device can be opened, with a node of each kind.
const deviceNodes = "/var/lib/e2e-device-nodes"

func (s *site) makeDeviceNodes(ctx context.Context) error {
	_, err := s.output(ctx, "mkdir "+deviceNodes+" && mount -t tmpfs -o nodev tmpfs "+deviceNodes+
		" && mknod "+deviceNodes+"/block b 253 7 && mknod "+deviceNodes+"/character c 1 3")
	return err
}

// socketIsRoots checks that nobody but root can ask at the socket, or put another in its place.
func (s *site) socketIsRoots(ctx context.Context) error {
	const socket = "/run/kata-vfio/pod-resources.sock"
	got, err := s.output(ctx, "stat -c '%U %a' "+socket+" "+path.Dir(socket)+
		"; setpriv --reuid=65534 --clear-groups rm -f "+socket+" 2>&1 || true; test -S "+socket)
	if err != nil {
		return err
	}
	lines := strings.Split(got, "\n")
	if len(lines) != 3 || lines[0] != "root 600" || !strings.HasPrefix(lines[1], "root 7") || !strings.Contains(lines[2], "Permission denied") {
		return fmt.Errorf("the socket is open to others: %q", got)
	}
	return nil
}
