//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/controller"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/test/e2e/binaries"
	"github.com/kata-vfio/kata-vfio/test/e2e/node"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
	"github.com/kata-vfio/kata-vfio/test/vendordriver"
)

// vendorDriver is the program that stands in for the vendor's DRA driver on the node.
const vendorDriver = "vendor-driver"

// sharedObjects are a DeviceClass of the vendor's driver, and a template for each side.
const sharedObjects = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: container-gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: shared-gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: shared-gpu.kata-vfio.dev}}]}}}
`

const (
	vmOfSharedGPU = "{name: gpu, resourceClaimTemplateName: shared-gpu}"
	// containerOfGPU is a pod without a VM that has a GPU by the vendor's driver.
	containerOfGPU = `
---
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  automountServiceAccountToken: false
  dnsPolicy: Default
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: gpu, resourceClaimTemplateName: container-gpu}]
  containers:
  - {name: main, image: "` + node.PauseImage + `", imagePullPolicy: Never, resources: {claims: [{name: gpu}]}}
`
)

// containersAndVMsShareGPU: a container and a VM have one GPU in turns, by two drivers, with the controller of the chart. The plugin
// refuses the VM while the container has the GPU, even if the claim says that the GPU is reserved.
func containersAndVMsShareGPU(ctx context.Context, s *site) error {
	after := context.WithoutCancel(ctx)
	err := s.shareGPU(ctx)
	if err == nil {
		err = s.takeTurns(ctx)
	}
	if err == nil {
		err = s.awaitTwinTaint(ctx, "")
	}
	_, deleteErr := s.plane.Kubectl(after, "delete", "deviceclass", "gpu.example.com", "--ignore-not-found")
	return errors.Join(err, deleteErr, s.clear(after), s.node.StopService(after, vendorDriver))
}

// sharedGPU is the one that the lab's values leave out.
const sharedGPU = topology.GPU3

// controllerSettings are the chart's for what needs its controller: one shared GPU, a sanitizer for another one, and PFs that have one
// tenant at a time. The older Kubernetes can't share GPUs.
func controllerSettings(ctx context.Context, s *site) ([]string, error) {
	settings, err := s.sanitizerSettings(ctx)
	settings = append(settings, "sharedPool.replicas=1",
		"tenancy.enabled=true", "nodeConfig.devices[2].name=vfs", "nodeConfig.devices[2].match.types={vf}", "nodeConfig.devices[2].exclusive={PF}",
		"nodeConfig.devices[3].name=others", "nodeConfig.devices[3].match.types={gpu}")
	if !binaries.Older() {
		settings = append(settings, "sharedPool.enabled=true", "sharedPool.drivers={"+vendordriver.Name+"}", "deviceClasses.shared-gpu.enabled=true",
			"nodeConfig.devices[0].exclude=false", "nodeConfig.devices[0].sharedWith="+vendordriver.Name)
	}
	return settings, err
}

// shareGPU starts the vendor's driver, and waits until it and ours publish the GPU.
func (s *site) shareGPU(ctx context.Context) error {
	err := s.node.StartService(vendorDriver, path.Join(node.Dir, "bin", vendorDriver), "--node", s.node.Name(),
		"--kubeconfig", path.Join(node.Dir, "etc/kubelet.kubeconfig"), "--gpus", sharedGPU)
	if err != nil {
		return err
	}
	return errors.Join(s.apply(ctx, tenant, sharedObjects), s.apply(ctx, trusted, sharedObjects), s.awaitController(ctx), s.awaitSharedGPU(ctx))
}

// awaitController waits until the chart's controller is ready and leads.
func (s *site) awaitController(ctx context.Context) error {
	return s.until(ctx, "the controller leads", nodeLimit, func(ctx context.Context) error {
		got, err := s.client.AppsV1().Deployments(system).Get(ctx, controller.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		lease, err := s.client.CoordinationV1().Leases(system).Get(ctx, controller.Name, metav1.GetOptions{})
		if err == nil && (got.Status.ReadyReplicas != 1 || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "") {
			err = fmt.Errorf("the Deployment has %+v, the lease %+v", got.Status, lease.Spec)
		}
		return err
	})
}

// awaitSharedGPU waits until both drivers publish the GPU.
func (s *site) awaitSharedGPU(ctx context.Context) error {
	return s.until(ctx, "both drivers publish the GPU", nodeLimit, func(ctx context.Context) error {
		list, err := s.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		by := map[string]string{} // the pool
		for _, slice := range list.Items {
			for _, d := range slice.Spec.Devices {
				if id := d.Attributes["resource.kubernetes.io/pciBusID"].StringValue; id != nil && *id == sharedGPU {
					by[slice.Spec.Driver] = slice.Spec.Pool.Name
				}
			}
		}
		if by[driver] != device.SharedPool(s.node.Name()) || by[vendordriver.Name] == "" {
			return fmt.Errorf("the pools by driver are %v", by)
		}
		return nil
	})
}

// takeTurns gives the GPU to a container, to a VM and to a container. Only VMs may have devices in a tenant's namespace.
func (s *site) takeTurns(ctx context.Context) error {
	if err := s.apply(ctx, trusted, strings.ReplaceAll(containerOfGPU, "NAME", "first")); err != nil {
		return err
	}
	if err := s.awaitRunningIn(ctx, trusted, nodeLimit, "first"); err != nil {
		return err
	}
	if err := s.apply(ctx, tenant, vmPod("vm", vmOfSharedGPU)); err != nil {
		return err
	}
	if err := errors.Join(s.awaitTwinTaint(ctx, v1alpha1.TwinTheirs), s.awaitEvent(ctx, tenant, "vm", "FailedScheduling", "cannot allocate all claims")); err != nil {
		return err
	}
	if err := errors.Join(s.deletePods(ctx, "vm"), s.refusesSharedGPU(ctx, "first"), s.deletePodsIn(ctx, trusted, "first")); err != nil {
		return err
	}
	return s.vmThenContainer(ctx)
}

// forcedClaim is one whose allocation does not come from the scheduler.
const forcedClaim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: forced}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: shared-gpu.kata-vfio.dev}}]}}
`

// refusesSharedGPU allocates the GPU, which a pod has without its claim saying so, to the claim of a VM, with the word of the
// controller that it is reserved. The plugin itself refuses it.
func (s *site) refusesSharedGPU(ctx context.Context, user string) error {
	if err := s.deallocate(ctx, user); err != nil {
		return err
	}
	return s.refusesForced(ctx, forcedClaim+vmPod("forced", "{name: gpu, resourceClaimName: forced}"), s.forcedStatus, rule.TwinInUse, "a pod on this node has device")
}

// refusesForced applies the claim and the pod "forced" of a tenant, and gives the claim a status that does not come from the scheduler. The
// plugin refuses it with the code and the text.
func (s *site) refusesForced(ctx context.Context, objects string, status func(*corev1.Pod) resourcev1.ResourceClaimStatus, code rule.Code, text string) error {
	onNode := strings.Replace(objects, "\nspec:\n", "\nspec:\n  nodeName: "+s.node.Name()+"\n", 1)
	if err := s.apply(ctx, trusted, onNode); err != nil {
		return err
	}
	claims := s.client.ResourceV1().ResourceClaims(trusted)
	pod, err := s.client.CoreV1().Pods(trusted).Get(ctx, "forced", metav1.GetOptions{})
	if err != nil {
		return err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		claim, err := claims.Get(ctx, "forced", metav1.GetOptions{})
		if err != nil {
			return err
		}
		claim.Status = status(pod)
		_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("allocate a device by force: %w", err)
	}
	if err := s.awaitEvent(ctx, trusted, "forced", string(code), text); err != nil {
		return err
	}
	err = s.client.CoreV1().Pods(trusted).Delete(ctx, "forced", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
	return errors.Join(err, claims.Delete(ctx, "forced", metav1.DeleteOptions{}))
}

// deallocate takes the allocation of a pod's claim back by force while the pod runs. Only the kubelet then knows of its device.
func (s *site) deallocate(ctx context.Context, pod string) error {
	got, err := s.client.CoreV1().Pods(trusted).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return err
	}
	claims := s.client.ResourceV1().ResourceClaims(trusted)
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		claim, err := claims.Get(ctx, *got.Status.ResourceClaimStatuses[0].ResourceClaimName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		claim.Status = resourcev1.ResourceClaimStatus{}
		_, err = claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("deallocate the claim of pod %s by force: %w", pod, err)
	}
	return nil
}

// forcedStatus is that of a claim that has the shared GPU for a pod.
func (s *site) forcedStatus(pod *corev1.Pod) resourcev1.ResourceClaimStatus {
	now, pool, name := metav1.Now(), device.SharedPool(s.node.Name()), "gpu-"+strings.NewReplacer(":", "-", ".", "-").Replace(sharedGPU)
	return resourcev1.ResourceClaimStatus{
		Allocation: &resourcev1.AllocationResult{
			AllocationTimestamp: &now,
			Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{
				Request: "gpu", Driver: driver, Pool: pool, Device: name,
				BindingConditions: []string{v1alpha1.ConditionTwinReserved}, BindingFailureConditions: []string{v1alpha1.ConditionTwinInUse},
			}}},
		},
		ReservedFor: []resourcev1.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
		Devices: []resourcev1.AllocatedDeviceStatus{{
			Driver: driver, Pool: pool, Device: name,
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionTwinReserved, Status: metav1.ConditionTrue, Reason: "Forced", LastTransitionTime: now,
			}},
		}},
	}
}

// vmThenContainer: the GPU is free. A VM has it, and a container that waits gets it after the VM.
func (s *site) vmThenContainer(ctx context.Context) error {
	if err := s.apply(ctx, tenant, vmPod("vm", vmOfSharedGPU)); err != nil {
		return err
	}
	if err := s.awaitRunning(ctx, vmPodLimit, "vm"); err != nil {
		return err
	}
	if err := errors.Join(s.wantBound(ctx, sharedGPU), s.awaitTwinTaint(ctx, v1alpha1.TwinOurs)); err != nil {
		return err
	}
	if err := s.apply(ctx, trusted, strings.ReplaceAll(containerOfGPU, "NAME", "second")); err != nil {
		return err
	}
	if err := s.awaitEvent(ctx, trusted, "second", "FailedScheduling", "cannot allocate all claims"); err != nil {
		return err
	}
	begin := time.Now()
	err := s.client.CoreV1().Pods(tenant).Delete(ctx, "vm", metav1.DeleteOptions{GracePeriodSeconds: new(int64(1))})
	if err != nil {
		return err
	}
	if err := s.awaitRunningIn(ctx, trusted, nodeLimit, "second"); err != nil {
		return err
	}
	s.log("from the end of the VM's pod to the container with its GPU: %.1fs", time.Since(begin).Seconds())
	return s.deletePodsIn(ctx, trusted, "second")
}

// awaitTwinTaint waits until exactly one device is tainted, because the side has the GPU; with "" until none is.
func (s *site) awaitTwinTaint(ctx context.Context, side string) error {
	return s.until(ctx, fmt.Sprintf("the other driver's device has the taint %q", side), nodeLimit, func(ctx context.Context) error {
		rules, err := s.client.ResourceV1().DeviceTaintRules().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var sides []string
		for _, r := range rules.Items {
			sides = append(sides, r.Spec.Taint.Value)
		}
		if strings.Join(sides, " ") != side {
			err = fmt.Errorf("the rules have the taints %q", sides)
		}
		return err
	})
}
