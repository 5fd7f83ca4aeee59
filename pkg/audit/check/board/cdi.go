package board

// goodCdi sets up what the checks of CDI look at: a spec as NVIDIA's container
// toolkit writes it for GPUs that containers share. Those of claims come with
// [Tree.Give].
func (t *Tree) goodCdi() {
	t.Put("etc/cdi/nvidia.yaml", `cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env: [NVIDIA_VISIBLE_DEVICES=void]
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, update-ldcache]
  mounts:
  - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.1
    containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.1
    options: [ro, nosuid, nodev, bind]
`)
	t.Own("etc/cdi/nvidia.yaml", "100644", 0, 0)
	t.Own("run/cdi", "40755", 0, 0)
}
