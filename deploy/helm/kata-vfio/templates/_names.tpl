{{/*
There is one release per cluster: the driver's name, and what hangs on it, is the cluster's. Names of other objects start with
kata-vfio, or with nameOverride, and not with the release's name.
*/}}
{{- define "kata-vfio.name" -}}
{{ .Values.nameOverride | default "kata-vfio" }}
{{- end }}

{{- define "kata-vfio.driver" -}}
kata-vfio.dev
{{- end }}

{{/* The CDI vendor and class of all our devices. */}}
{{- define "kata-vfio.cdiKind" -}}
kata-vfio.dev/vfio
{{- end }}

{{- define "kata-vfio.plugin" -}}
{{ include "kata-vfio.name" . }}-plugin
{{- end }}

{{- define "kata-vfio.audit" -}}
{{ include "kata-vfio.name" . }}-audit
{{- end }}

{{- define "kata-vfio.bootstrap" -}}
{{ include "kata-vfio.name" . }}-bootstrap
{{- end }}

{{- define "kata-vfio.test" -}}
{{ include "kata-vfio.name" . }}-test
{{- end }}

{{- define "kata-vfio.controller" -}}
{{ include "kata-vfio.name" . }}-controller
{{- end }}

{{/*
A file of monitoring/, from (list file root). Prometheus knows the plugin and the controller by the names of their objects, which
nameOverride changes. Texts name the controller's program, which keeps its name. The series of kube-state-metrics are of all namespaces,
and tenants name their DaemonSets and Deployments as they like.
*/}}
{{- define "kata-vfio.monitoring" -}}
{{- $root := index . 1 }}
{{- $controller := include "kata-vfio.controller" $root }}
{{- $ours := printf "{namespace=%q, " $root.Release.Namespace }}
{{- $root.Files.Get (printf "monitoring/%s" (index . 0))
  | replace "{daemonset=" (printf "%sdaemonset=" $ours) | replace "{deployment=" (printf "%sdeployment=" $ours)
  | replace "kata-vfio-plugin" (include "kata-vfio.plugin" $root)
  | replace "kata-vfio-controller\"" (printf "%s\"" $controller)
  | replace "Deployment kata-vfio-controller" (printf "Deployment %s" $controller) }}
{{- end }}

{{/* The ConfigMap with the IDs of tenants, which the controller creates. */}}
{{- define "kata-vfio.tenants" -}}
kata-vfio-tenants
{{- end }}

{{/* The ConfigMap with what tenants may know of DeviceClasses. */}}
{{- define "kata-vfio.classes" -}}
kata-vfio-classes
{{- end }}

{{/* The taint of devices in a tenant's domain. */}}
{{- define "kata-vfio.tenantTaint" -}}
{{ include "kata-vfio.driver" . }}/tenant
{{- end }}

{{/* The role of who sees everything. */}}
{{- define "kata-vfio.view" -}}
{{ include "kata-vfio.name" . }}-view
{{- end }}

{{/* The role of who reads the plugin's metrics. */}}
{{- define "kata-vfio.metricsReader" -}}
{{ include "kata-vfio.name" . }}-metrics-reader
{{- end }}

{{/* A ClusterRoleBinding of (list name subjects root), where there are subjects: the ClusterRole has the same name. */}}
{{- define "kata-vfio.bindingOf" -}}
{{- $name := index . 0 }}
{{- $root := index . 2 }}
{{- with index . 1 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels: {{- include "kata-vfio.labels" $root | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $name }}}
subjects:
{{- include "kata-vfio.subjects" . }}
{{- end }}
{{- end }}

{{/* The subjects of a binding. */}}
{{- define "kata-vfio.subjects" -}}
{{- range . }}
- kind: {{ .kind }}
  name: {{ .name | quote }}
  {{- if eq .kind "ServiceAccount" }}
  namespace: {{ .namespace }}
  {{- else }}
  apiGroup: rbac.authorization.k8s.io
  {{- end }}
{{- end }}
{{- end }}

{{/* The plugin's account. */}}
{{- define "kata-vfio.serviceAccount" -}}
{{- with .Values.serviceAccount }}
{{- if not (or .create .name) }}
{{- fail "serviceAccount.create is false and serviceAccount.name is empty: set the name of the account that you created for the plugin" }}
{{- end }}
{{- .name | default (include "kata-vfio.plugin" $) }}
{{- end }}
{{- end }}

{{/* The user that the plugin is to the API server. */}}
{{- define "kata-vfio.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "kata-vfio.serviceAccount" . }}
{{- end }}

{{/* Labels that never change: a DaemonSet's selector is immutable. */}}
{{- define "kata-vfio.selector" -}}
app.kubernetes.io/name: kata-vfio
app.kubernetes.io/component: plugin
{{- end }}

{{/* The same of the controller: a Deployment's selector is immutable, too. */}}
{{- define "kata-vfio.controllerSelector" -}}
app.kubernetes.io/name: kata-vfio
app.kubernetes.io/component: controller
{{- end }}

{{/* Labels of every object. */}}
{{- define "kata-vfio.labels" -}}
{{- $chart := dict "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") }}
{{- merge (include "kata-vfio.podLabels" . | fromYaml) $chart .Values.commonLabels | toYaml }}
{{- end }}

{{/* Labels of every pod, without its component: no version of the chart, which would replace pods that stay as they are. */}}
{{- define "kata-vfio.podLabels" -}}
{{- $labels := dict "app.kubernetes.io/name" "kata-vfio" "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/part-of" "kata-vfio" }}
{{- $_ := set $labels "app.kubernetes.io/version" .Chart.AppVersion }}
{{- $_ := set $labels "app.kubernetes.io/managed-by" .Release.Service }}
{{- merge $labels .Values.commonLabels | toYaml }}
{{- end }}

{{/* Labels of the pods of (list component more root). The chart's own win: selectors go by them. */}}
{{- define "kata-vfio.labelsOf" -}}
{{- $own := dict "app.kubernetes.io/component" (index . 0) }}
{{- merge $own (include "kata-vfio.podLabels" (index . 2) | fromYaml) (index . 1) | toYaml }}
{{- end }}

{{- define "kata-vfio.imagePullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* Those of the Service, which the ServiceMonitor finds by the selector's. */}}
{{- define "kata-vfio.metricsLabels" -}}
{{- merge (include "kata-vfio.labels" . | fromYaml) (include "kata-vfio.selector" . | fromYaml) | toYaml }}
{{- end }}

{{- define "kata-vfio.image" -}}
{{- include "kata-vfio.imageOf" (list .Values.image .) }}
{{- end }}

{{- define "kata-vfio.imageOf" -}}
{{- $root := index . 1 }}
{{- with index . 0 -}}
{{ .repository }}:{{ .tag | default $root.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}

{{/*
When an image is pulled, from (list image path root). containerd asks a registry on localhost without TLS verification
(containerd 2.4.2), and whoever may serve a port of the node is that registry: an image by such a name is loaded on the node
or pinned by its digest.
*/}}
{{- define "kata-vfio.pullPolicy" -}}
{{- $image := index . 0 }}
{{- $local := regexMatch "^(localhost|127[.][0-9.]+)(:[0-9]+)?/" $image.repository }}
{{- if and $local (not $image.digest) (not (has $image.pullPolicy (list "" "Never"))) }}
{{- fail (printf "%s.pullPolicy: %s is refused for %s, since any pod that serves a port of the node could be that registry: leave it empty, set %s.digest, or name a registry" (index . 1) $image.pullPolicy $image.repository (index . 1)) }}
{{- end }}
{{- $image.pullPolicy | default (ternary "Never" "IfNotPresent" $local) }}
{{- end }}

{{/* The container that configures a pod's network inside its VM. */}}
{{- define "kata-vfio.guestnet" -}}
kata-vfio-guestnet
{{- end }}

{{- define "kata-vfio.guestnetImage" -}}
{{- include "kata-vfio.imageOf" (list .Values.guestnet.image .) }}
{{- end }}
