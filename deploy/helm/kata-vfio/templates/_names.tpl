{{/*
Names are fixed, since there is one release per cluster: the driver's name, and what hangs on it, is the cluster's.
*/}}
{{- define "kata-vfio.driver" -}}
kata-vfio.dev
{{- end }}

{{- define "kata-vfio.plugin" -}}
kata-vfio-plugin
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

{{- define "kata-vfio.image" -}}
{{- with .Values.image -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}
{{- end }}
