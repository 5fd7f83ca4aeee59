{{/*
Nodes of a DaemonSet from (list nodeSelector root), or (list nodeSelector root component) for one of a pool. With NFD, the label that an admin sets isn't needed: labels of the hardware take
its place. NFD has no label for the IOMMU. The plugin and bootstrap check that themselves.
*/}}
{{- define "kata-vfio.nodes" -}}
{{- $root := index . 1 }}
{{- $nfd := eq $root.Values.nodeSelection.mode "NFD" }}
{{- $selector := index . 0 }}
{{- if $nfd }}{{ $selector = omit $selector "kata-vfio.dev/node" }}{{ end }}
{{- with $selector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- $affinity := deepCopy $root.Values.plugin.affinity }}
{{- if $nfd }}
{{- $affinity = merge $affinity (include "kata-vfio.nfdAffinity" $root | fromYaml) }}
{{- end }}
{{- if and (gt (len .) 2) $root.Pool }}
{{- $apart := get $affinity "podAntiAffinity" | default dict }}
{{- $required := get $apart "requiredDuringSchedulingIgnoredDuringExecution" | default list }}
{{- $required = append $required (include "kata-vfio.apartFromOtherPools" (list (index . 2) $root) | fromYaml) }}
{{- $_ := set $affinity "podAntiAffinity" (set $apart "requiredDuringSchedulingIgnoredDuringExecution" $required) }}
{{- end }}
{{- with $affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.plugin.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* The terms are alternatives: one label of a device is enough. */}}
{{- define "kata-vfio.nfdAffinity" -}}
{{- if dig "nodeAffinity" "requiredDuringSchedulingIgnoredDuringExecution" "" .Values.plugin.affinity }}
{{- fail "nodeSelection.mode is NFD and plugin.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution is set: the chart sets that field from nodeSelection.nfdLabels; use plugin.nodeSelector, or nodeSelection.mode Label" }}
{{- end }}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
    {{- range .Values.nodeSelection.nfdLabels }}
    - matchExpressions:
      - {key: {{ . }}, operator: In, values: ["true"]}
    {{- end }}
{{- end }}
