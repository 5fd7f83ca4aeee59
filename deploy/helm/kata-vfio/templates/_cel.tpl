{{/*
CEL that more than one admission policy uses. An expression that errors refuses the request, so all of it takes fields
by optional access.
*/}}

{{/* Names of extended resources that stand for devices of ours, as a CEL list. */}}
{{- define "kata-vfio.cel.extendedResources" -}}
{{- $names := .Values.admission.tenants.extendedResources }}
{{- range .Values.deviceClasses }}
{{- if and .enabled .extendedResourceName }}{{ $names = append $names .extendedResourceName }}{{ end }}
{{- end }}
{{- include "kata-vfio.cel.list" (uniq $names | sortAlpha) }}
{{- end }}

{{/* A list of strings. The schema lets no quote or backslash through. */}}
{{- define "kata-vfio.cel.list" -}}
[{{ range $i, $v := . }}{{ if $i }}, {{ end }}'{{ $v }}'{{ end }}]
{{- end }}

{{/*
Whether the pod has, or may have, a device: by a claim, or by an extended resource, the implicit ones included. A pod
without containers, which only a mutating policy gets to see, has null there.
*/}}
{{- define "kata-vfio.cel.usesDevices" -}}
size(object.spec.?resourceClaims.orValue([])) > 0 ||
[dyn(object.spec.?containers.orValue([])), dyn(object.spec.?initContainers.orValue([]))].exists(list, list != null &&
  list.exists(c, [c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})].exists(quantities,
    quantities.exists(name, name.startsWith('deviceclass.resource.kubernetes.io/') ||
      name in {{ include "kata-vfio.cel.extendedResources" . }}))))
{{- end }}

{{/* Whether a container of the pod asks for an extended resource of the DeviceClass that is the parameter. */}}
{{- define "kata-vfio.cel.namesClass" -}}
[dyn(object.spec.?containers.orValue([])), dyn(object.spec.?initContainers.orValue([]))].exists(list, list != null &&
  list.exists(c, [c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})].exists(quantities,
    quantities.exists(name, name == 'deviceclass.resource.kubernetes.io/' + params.metadata.name ||
      name == params.spec.?extendedResourceName.orValue('')))))
{{- end }}

{{/* The refusal of a pod with devices that runs in no VM. */}}
{{- define "kata-vfio.cel.mustRunInVM" -}}
a pod with devices (resourceClaims, or a device resource in limits) must run in a VM in this namespace, which is a
tenant's (label {{ .Values.admission.tenants.namespaceLabel }}): set runtimeClassName to
{{ join " or " .Values.allowedRuntimeClasses }}
{{- end }}

{{/* The times in seconds that the pod and its containers may take to end, as a list. */}}
{{- define "kata-vfio.cel.grace" -}}
[object.spec.?terminationGracePeriodSeconds.orValue(0)] +
object.spec.?containers.orValue([]).map(c, c.?livenessProbe.?terminationGracePeriodSeconds.orValue(0)) +
object.spec.?containers.orValue([]).map(c, c.?startupProbe.?terminationGracePeriodSeconds.orValue(0)) +
object.spec.?initContainers.orValue([]).map(c, c.?livenessProbe.?terminationGracePeriodSeconds.orValue(0)) +
object.spec.?initContainers.orValue([]).map(c, c.?startupProbe.?terminationGracePeriodSeconds.orValue(0))
{{- end }}

{{/* The refusal of a pod with devices that may take too long to end. */}}
{{- define "kata-vfio.cel.graceTooLong" -}}
terminationGracePeriodSeconds of a pod with devices, of its probes, and a grace period of its deletion, may be
{{ int .Values.admission.tenants.maxGracePeriodSeconds }} seconds at most in this namespace, which is a tenant's
(label {{ .Values.admission.tenants.namespaceLabel }}): set less, or ask the cluster's admin (admission.tenants.maxGracePeriodSeconds)
(GracePeriodTooLong)
{{- end }}

{{/* The API server sets the field of a pod that has none. */}}
{{- define "kata-vfio.cel.hasScheduler" -}}
object.spec.?schedulerName.orValue('') == '{{ .Values.admission.tenants.schedulerName }}'
{{- end }}

{{/* The refusal of a pod with devices that another scheduler would serve. */}}
{{- define "kata-vfio.cel.otherScheduler" -}}
a pod with devices (resourceClaims, or a device resource in limits) needs schedulerName: {{ .Values.admission.tenants.schedulerName }} in this
namespace, which is a tenant's (label {{ .Values.admission.tenants.namespaceLabel }}), because two schedulers give the same device to two pods: set it,
or ask the cluster's admin (admission.tenants.schedulerName) (SchedulerNotAllowed)
{{- end }}

{{- define "kata-vfio.cel.hasRuntimeClass" -}}
object.spec.?runtimeClassName.orValue('') != ''
{{- end }}

{{- define "kata-vfio.cel.runsInVM" -}}
object.spec.?runtimeClassName.orValue('') in {{ include "kata-vfio.cel.list" .Values.allowedRuntimeClasses }}
{{- end }}

{{/* Capabilities that Pod Security "baseline" lets a container add. */}}
{{- define "kata-vfio.cel.capabilities" -}}
{{- include "kata-vfio.cel.list" (list "AUDIT_WRITE" "CHOWN" "DAC_OVERRIDE" "FOWNER" "FSETID" "KILL" "MKNOD" "NET_BIND_SERVICE" "SETFCAP" "SETGID" "SETPCAP" "SETUID" "SYS_CHROOT") }}
{{- end }}

{{/* The API version in which the API server has MutatingAdmissionPolicy; empty where it has none. */}}
{{- define "kata-vfio.mutatingVersion" -}}
{{- $versions := list }}
{{- range list "v1" "v1beta1" }}
{{- $version := printf "admissionregistration.k8s.io/%s" . }}
{{- if $.Capabilities.APIVersions.Has (printf "%s/MutatingAdmissionPolicy" $version) }}
{{- $versions = append $versions $version }}
{{- end }}
{{- end }}
{{- with $versions }}{{ first . }}{{ end }}
{{- end }}

{{/* The annotation by which a pod asks for the init container that configures its network. */}}
{{- define "kata-vfio.configureNetwork.key" -}}
kata-vfio.dev/configure-network
{{- end }}

{{/* The annotation that makes NRI's default validator require our plugin, and its value. */}}
{{- define "kata-vfio.requiredPlugins.key" -}}
required-plugins.noderesource.dev
{{- end }}
{{- define "kata-vfio.requiredPlugins.value" -}}
[ kata-vfio ]
{{- end }}

{{/*
Whether the request neither adds, changes nor removes an annotation for required NRI plugins, except that it adds ours. It
needs the variables annotations, changed and removed.
*/}}
{{- define "kata-vfio.cel.keepsRequiredPlugins" -}}
variables.changed.all(key, !key.startsWith('{{ include "kata-vfio.requiredPlugins.key" . }}') ||
(key == '{{ include "kata-vfio.requiredPlugins.key" . }}' &&
variables.annotations[key] == '{{ include "kata-vfio.requiredPlugins.value" . }}')) &&
variables.removed.all(key, !key.startsWith('{{ include "kata-vfio.requiredPlugins.key" . }}'))
{{- end }}

{{/* The annotation by which a DeviceClass names the namespaces that it is granted to. */}}
{{- define "kata-vfio.namespaces.key" -}}
kata-vfio.dev/namespaces
{{- end }}

{{/* The annotation by which a DeviceClass lets claims request all of its devices. */}}
{{- define "kata-vfio.allowAll.key" -}}
kata-vfio.dev/allow-all
{{- end }}

{{- define "kata-vfio.cel.actions" -}}
validationActions: [{{ .Values.admission.action }}]
{{- end }}
