{{/*
The plugin's arguments, privileges and mounts. Flags stand here only where a value differs from the plugin's default.
*/}}
{{- define "kata-vfio.args" -}}
- run
- --log-format={{ .Values.plugin.logFormat }}
{{- if ne .Values.plugin.logLevel "info" }}
- --log-level={{ .Values.plugin.logLevel }}
{{- end }}
{{- with .Values.plugin.otlpEndpoint }}
- --otlp-endpoint={{ . }}
{{- end }}
{{- if .Values.plugin.pprof }}
- --pprof=127.0.0.1:9457
{{- end }}
- {{ include "kata-vfio.probeSocket" . }}
# The same directory as /var/run/cdi on the node, by the name that it has in the container.
- --metadata-cdi-dir=/run/cdi
{{- if eq .Values.nodeConfig.source "ConfigMap" }}
- --config=/etc/kata-vfio/node.yaml
{{- end }}
{{- if .Values.sanitizers.profiles }}
- --sanitizers={{ include "kata-vfio.sanitizersDir" . }}/sanitizers.yaml
{{- end }}
{{- if ne .Values.kubelet.dir "/var/lib/kubelet" }}
- --plugin-dir={{ .Values.kubelet.dir }}/plugins/{{ include "kata-vfio.driver" . }}
- --registry-dir={{ .Values.kubelet.dir }}/plugins_registry
{{- end }}
{{- with .Values.plugin.sockets.podResources }}
- --pod-resources-socket={{ . }}
{{- end }}
{{- if or .Values.plugin.sockets.kubeletPodResources (ne .Values.kubelet.dir "/var/lib/kubelet") }}
- --kubelet-pod-resources={{ include "kata-vfio.kubeletPodResources" . }}
{{- end }}
{{- with .Values.plugin.sockets.nri }}
- --nri-socket={{ . }}
{{- end }}
{{- if ne (join "," .Values.plugin.exemptNamespaces) "kube-system" }}
- --exempt-namespace={{ append .Values.plugin.exemptNamespaces .Release.Namespace | uniq | join "," }}
{{- end }}
{{- if ne .Values.plugin.ledger.retention "8760h" }}
- --ledger-retention={{ .Values.plugin.ledger.retention | default "0" }}
{{- end }}
{{- if ne (int64 .Values.plugin.ledger.maxBytes) 1073741824 }}
- --ledger-max-bytes={{ int64 .Values.plugin.ledger.maxBytes }}
{{- end }}
{{- with .Values.metrics }}
- --metrics-listen=:{{ .port }}
{{- if and .open .tls.secretName }}
{{- fail "metrics.open serves plain HTTP: leave metrics.tls.secretName empty, or metrics.open false" }}
{{- end }}
{{- if and .open .tenantLabels (not (and $.Values.networkPolicy.enabled $.Values.networkPolicy.metricsFrom)) }}
{{- fail "metrics.open and metrics.tenantLabels name tenants and claims to every pod: say who may connect by networkPolicy.metricsFrom, or leave one of them false" }}
{{- end }}
{{- if .open }}
- --metrics-open
{{- end }}
{{- if .tls.secretName }}
- --metrics-cert-file={{ include "kata-vfio.metricsTLS" $ }}/tls.crt
- --metrics-key-file={{ include "kata-vfio.metricsTLS" $ }}/tls.key
{{- end }}
{{- if .tenantLabels }}
- --metrics-tenants
{{- end }}
{{- end }}
{{- if .Values.plugin.ledger.pseudonyms }}
- --ledger-pseudonyms
{{- end }}
{{- with .Values.plugin.audit }}
{{- if ne .profile "multi-tenant" }}
- --audit-profile={{ .profile }}
{{- end }}
{{- if ne .taint "high" }}
- --audit-taint={{ .taint }}
{{- end }}
{{- if ne .every "1m" }}
- --audit-every={{ .every }}
{{- end }}
{{- end }}
{{- with .Values.plugin.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
Probes of plugin and controller, whose program is the argument. They run in the container and ask at a socket of the pod, which no other
pod reaches. A process costs about 0.1 s of CPU time with what the runtime needs to start it, which is seconds on a node under load: so
probes are seldom and wait long. The kubelet ends a program that has not answered for five minutes. A slow one goes on.
*/}}
{{- define "kata-vfio.probes" -}}
{{- $periods := .root.Values.probes }}
livenessProbe:
  exec: {command: [{{ .program }}, probe, live, {{ include "kata-vfio.probeSocket" . }}]}
  periodSeconds: {{ $periods.livenessPeriodSeconds }}
  timeoutSeconds: {{ include "kata-vfio.probeTimeout" . }}
  failureThreshold: {{ include "kata-vfio.probeFailures" (dict "limit" 300 "period" $periods.livenessPeriodSeconds) }}
readinessProbe:
  exec: {command: [{{ .program }}, probe, ready, {{ include "kata-vfio.probeSocket" . }}]}
  periodSeconds: {{ $periods.readinessPeriodSeconds }}
  timeoutSeconds: {{ include "kata-vfio.probeTimeout" . }}
{{- end }}

{{/* How many probes may fail: as many as begin within a limit, which is in seconds like the period. */}}
{{- define "kata-vfio.probeFailures" -}}
{{ div (sub (add .limit .period) 1) .period }}
{{- end }}

{{/* Seconds: more than the program `probe` itself waits, so that its answer names the cause. */}}
{{- define "kata-vfio.probeTimeout" -}}
30
{{- end }}

{{- define "kata-vfio.probeDir" -}}
/run/kata-vfio-probes
{{- end }}

{{- define "kata-vfio.probeSocket" -}}
--probe-socket={{ include "kata-vfio.probeDir" . }}/probes.sock
{{- end }}

{{/* In memory: a full disk must not keep a program from its start. */}}
{{- define "kata-vfio.probeVolume" -}}
- name: probes
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}

{{/* Where the certificate of /metrics is mounted. */}}
{{- define "kata-vfio.metricsTLS" -}}
/etc/kata-vfio-metrics
{{- end }}

{{- define "kata-vfio.podResources" -}}
{{ .Values.plugin.sockets.podResources | default "/run/kata-vfio/pod-resources.sock" }}
{{- end }}

{{- define "kata-vfio.kubeletPodResources" -}}
{{ .Values.plugin.sockets.kubeletPodResources | default (printf "%s/pod-resources/kubelet.sock" .Values.kubelet.dir) }}
{{- end }}

{{- define "kata-vfio.nri" -}}
{{ .Values.plugin.sockets.nri | default "/var/run/nri/nri.sock" }}
{{- end }}

{{- define "kata-vfio.securityContext" -}}
runAsUser: 0
runAsGroup: 0
readOnlyRootFilesystem: true
{{- if .Values.plugin.privileged }}
privileged: true
{{- else }}
privileged: false
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
  add:
  # Configuration space beyond its first 64 bytes: ACS, and what a reset must bring back. The node's network namespace,
  # where PFs have their interfaces.
  - SYS_ADMIN
  # /proc/<pid>/fd of other processes: who holds a device.
  - SYS_PTRACE
  # The same, of processes of other users.
  - DAC_READ_SEARCH
  # The node's own modprobe, of VFIO drivers and of drivers that devices go back to. It runs in the node's root.
  - SYS_MODULE
  - SYS_CHROOT
  # MAC, VLAN and policy of VFs through their PFs, and a large buffer for uevents.
  - NET_ADMIN
seccompProfile:
  type: RuntimeDefault
{{- with .Values.plugin.appArmorProfile }}
appArmorProfile:
  type: {{ .type }}
  {{- with .localhostProfile }}
  localhostProfile: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.plugin.seLinuxOptions }}
seLinuxOptions: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Directories of the node: volume's name, path on the node, path in the container, hostPath type, read-only. */}}
{{- define "kata-vfio.hostPaths" -}}
# driver_override, unbind, drivers_probe, reset. A container's own /sys is read-only and, for network
# devices, another's.
- {name: sys, host: /sys, type: Directory}
# VFIO nodes come and go. Read-only is enough to open them; nothing is created here.
- {name: dev, host: /dev, type: Directory, readOnly: true}
# modules.alias: which VFIO driver a device wants.
- {name: modules, host: /lib/modules, type: Directory, readOnly: true}
# The DRA socket and files of device metadata, which the kubelet and the runtime know by the same path.
- {name: plugin, host: {{ .Values.kubelet.dir }}/plugins/{{ include "kata-vfio.driver" . }}, type: DirectoryOrCreate}
- {name: registry, host: {{ .Values.kubelet.dir }}/plugins_registry, type: Directory}
# CDI specs of prepared claims.
- {name: cdi, host: /var/run/cdi, mount: /run/cdi, type: DirectoryOrCreate}
# CDI specs of other device plugins, which Kata reads as well.
- {name: etc-cdi, host: /etc/cdi, type: DirectoryOrCreate, readOnly: true}
# Locks that two instances share.
- {name: run, host: /run/kata-vfio, type: DirectoryOrCreate}
# The journal: what was bound, from which driver, for whom.
- {name: state, host: /var/lib/kata-vfio, type: DirectoryOrCreate}
# The sockets' directories and not the sockets, which are made anew whenever who serves them restarts. Each directory once: several
# sockets may be in one, and a path can be mounted only once.
{{- $mounted := list "/run/kata-vfio" }}
{{- $dir := dir (include "kata-vfio.podResources" .) }}
{{- if not (has $dir $mounted) }}
{{- $mounted = append $mounted $dir }}
- {name: pod-resources, host: {{ $dir }}, type: DirectoryOrCreate}
{{- end }}
{{- $dir = dir (include "kata-vfio.kubeletPodResources" .) }}
{{- if not (has $dir $mounted) }}
{{- $mounted = append $mounted $dir }}
- {name: kubelet-pod-resources, host: {{ $dir }}, type: Directory, readOnly: true}
{{- end }}
{{- $dir = dir (include "kata-vfio.nri" .) }}
{{- if not (has $dir $mounted) }}
- {name: nri, host: {{ $dir }}, type: DirectoryOrCreate, readOnly: true}
{{- end }}
{{- if .Values.plugin.fabric.enabled }}
# The API of NVIDIA's Fabric Manager. Its service makes the directory root's alone.
- {name: fabric, host: /run/kata-vfio-fabric, type: DirectoryOrCreate, readOnly: true}
{{- end }}
{{- if or .Values.plugin.cni.mount (and (eq .Values.nodeConfig.source "ConfigMap") .Values.nodeConfig.addressPools) }}
# CNI IPAM plugins: their binaries, their leases, and what their configuration may name.
{{- range $i, $dir := .Values.nodeConfig.cniBinDirs }}
- {name: cni-bin-{{ $i }}, host: {{ $dir }}, type: DirectoryOrCreate, readOnly: true}
{{- end }}
- {name: cni-state, host: {{ .Values.plugin.cni.stateDir }}, type: DirectoryOrCreate}
{{- with .Values.plugin.cni.configDir }}
- {name: cni-config, host: {{ . }}, type: DirectoryOrCreate, readOnly: true}
{{- end }}
{{- end }}
{{- with .Values.plugin.pciIDsDir }}
- {name: pci-ids, host: {{ . }}, type: Directory, readOnly: true}
{{- end }}
{{- if eq .Values.nodeConfig.source "Node" }}
- {name: config, host: /etc/kata-vfio, type: DirectoryOrCreate, readOnly: true}
{{- end }}
{{- end }}

{{/* The environment in which a program finds the API server without a service proxy. */}}
{{- define "kata-vfio.apiServerEnv" -}}
{{- with .Values.plugin.apiServer }}
{{- if .host -}}
- {name: KUBERNETES_SERVICE_HOST, value: {{ .host | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ .port | quote }}}
{{- end }}
{{- end }}
{{- end }}
