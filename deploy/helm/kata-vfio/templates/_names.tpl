{{/*
Names are fixed, since there is one release per cluster: the driver's name, and what hangs on it, is the cluster's.
*/}}
{{- define "kata-vfio.driver" -}}
kata-vfio.dev
{{- end }}

{{- define "kata-vfio.plugin" -}}
kata-vfio-plugin
{{- end }}

{{- define "kata-vfio.audit" -}}
kata-vfio-audit
{{- end }}

{{- define "kata-vfio.bootstrap" -}}
kata-vfio-bootstrap
{{- end }}

{{/* The role of who sees everything. */}}
{{- define "kata-vfio.view" -}}
kata-vfio-view
{{- end }}

{{/* The user that the plugin is to the API server. */}}
{{- define "kata-vfio.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "kata-vfio.plugin" . }}
{{- end }}

{{/* Labels that never change: a DaemonSet's selector is immutable. */}}
{{- define "kata-vfio.selector" -}}
app.kubernetes.io/name: kata-vfio
app.kubernetes.io/component: plugin
{{- end }}

{{- define "kata-vfio.labels" -}}
app.kubernetes.io/name: kata-vfio
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
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

{{/* The container that configures a pod's network inside its VM. */}}
{{- define "kata-vfio.guestnet" -}}
kata-vfio-guestnet
{{- end }}

{{- define "kata-vfio.guestnetImage" -}}
{{- include "kata-vfio.imageOf" (list .Values.guestnet.image .) }}
{{- end }}
