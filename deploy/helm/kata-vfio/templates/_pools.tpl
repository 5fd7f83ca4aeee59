{{/*
Pools of nodes with different boards. Each has a plugin, a node config and a bootstrap of its own. No two pools can have the same node:
checkPools requires a label with different values, and the scheduler places no two plugins on a node (apartFromOtherPools).

setPools sets "roots" of a dict, from (list dict root): for each pool a root with the pool's values in nodeConfig, bootstrap and
plugin.nodeSelector. Without pools there is one root, with the values as they are, and its Pool is "".
*/}}
{{- define "kata-vfio.setPools" -}}
{{- $root := index . 1 }}
{{- $roots := list }}
{{- range $root.Values.pools }}
{{- $roots = append $roots (dict "Pool" .name "Values" (include "kata-vfio.poolValues" (list . $root) | fromJson) "Release" $root.Release "Chart" $root.Chart "Capabilities" $root.Capabilities) }}
{{- else }}
{{- $roots = list (dict "Pool" "" "Values" $root.Values "Release" $root.Release "Chart" $root.Chart "Capabilities" $root.Capabilities) }}
{{- end }}
{{- $_ := set (index . 0) "roots" $roots }}
{{- end }}

{{/* The values of a pool's nodes as JSON, from (list pool root). */}}
{{- define "kata-vfio.poolValues" -}}
{{- $pool := index . 0 }}
{{- $values := (index . 1).Values }}
{{- $selector := dict "nodeSelector" $pool.nodeSelector }}
{{- $bootstrap := dict "nodeSelector" ($values.bootstrap.nodeSelector | default $values.plugin.nodeSelector) }}
{{- $bootstrap = include "kata-vfio.overlay" (list $bootstrap $selector ($pool.bootstrap | default dict)) | fromJson }}
{{- include "kata-vfio.overlay" (list $values (dict "nodeConfig" ($pool.nodeConfig | default dict) "bootstrap" $bootstrap "plugin" $selector)) }}
{{- end }}

{{/* A list of values as JSON, each laid over those before it as Helm does with files of values: maps are merged, all else is replaced. */}}
{{- define "kata-vfio.overlay" -}}
{{- $all := dict }}
{{- range . }}
{{- range $key, $value := . }}
{{- if and (kindIs "map" $value) (kindIs "map" (get $all $key)) }}
{{- $value = include "kata-vfio.overlay" (list (get $all $key) $value) | fromJson }}
{{- end }}
{{- $_ := set $all $key $value }}
{{- end }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{/* The name of a pool's object, from (list name root). */}}
{{- define "kata-vfio.ofPool" -}}
{{ index . 0 }}{{ with (index . 1).Pool }}-{{ . }}{{ end }}
{{- end }}

{{/* The label that tells a pool's pods from those of other pools. */}}
{{- define "kata-vfio.poolLabel" -}}
{{- with .Pool -}}
kata-vfio.dev/pool: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Labels of a pool's object. */}}
{{- define "kata-vfio.labelsOfPool" -}}
{{- merge (include "kata-vfio.poolLabel" . | fromYaml) (include "kata-vfio.labels" . | fromYaml) | toYaml }}
{{- end }}

{{/* The term of podAntiAffinity that keeps the scheduler from a node with a component of another pool, from (list component root). It is
about the release's namespace only: anybody can give a pod in another namespace these labels and a node. */}}
{{- define "kata-vfio.apartFromOtherPools" -}}
labelSelector:
  matchLabels: {app.kubernetes.io/name: kata-vfio, app.kubernetes.io/component: {{ index . 0 }}}
  matchExpressions:
  # Also pods without the label.
  - {key: kata-vfio.dev/pool, operator: NotIn, values: [{{ (index . 1).Pool | quote }}]}
topologyKey: kubernetes.io/hostname
{{- end }}

{{/* Not empty if bootstrap runs on the nodes of a pool. */}}
{{- define "kata-vfio.bootstraps" -}}
{{- $pools := dict }}
{{- include "kata-vfio.setPools" (list $pools .) }}
{{- range $pools.roots }}
{{- if .Values.bootstrap.enabled }}true{{ end }}
{{- end }}
{{- end }}

{{/* Where the values of a pool's nodes stand, for refusals. */}}
{{- define "kata-vfio.inPool" -}}
{{- with .Pool }}pool {{ . }}: {{ end }}
{{- end }}

{{/* Whether a node can be in one pool only: two selectors of labels exclude each other if one label has different values in them. */}}
{{- define "kata-vfio.checkPools" -}}
{{- $before := list }}
{{- range $pool := .Values.pools }}
{{- range $key, $value := $pool.nodeSelector }}
{{- if and (hasKey $.Values.plugin.nodeSelector $key) (ne $value (get $.Values.plugin.nodeSelector $key)) }}
{{- fail (printf "pool %s: nodeSelector has %s=%s, and plugin.nodeSelector has %s=%s, which nodes of all pools need: use another label" $pool.name $key $value $key (get $.Values.plugin.nodeSelector $key)) }}
{{- end }}
{{- end }}
{{- range $other := $before }}
{{- if eq $other.name $pool.name }}
{{- fail (printf "pools has two pools named %s: set two names" $pool.name) }}
{{- end }}
{{- $apart := false }}
{{- range $key, $value := $pool.nodeSelector }}
{{- if and (hasKey $other.nodeSelector $key) (ne $value (get $other.nodeSelector $key)) }}
{{- $apart = true }}
{{- end }}
{{- end }}
{{- if not $apart }}
{{- fail (printf "pools %s and %s can have the same node, where two plugins would take the same devices: set one label in both nodeSelectors, with different values, such as kata-vfio.dev/pool: %s" $other.name $pool.name $pool.name) }}
{{- end }}
{{- end }}
{{- $before = append $before $pool }}
{{- end }}
{{- end }}

{{/* Which nodes are in which pool, and in none: those can be listed where one label tells all pools apart. */}}
{{- define "kata-vfio.poolsInNotes" -}}
{{- with .Values.pools }}

Each of these nodes must be in one pool:
{{- range . }}
  {{ .name }}:{{ range $key, $value := .nodeSelector }} {{ $key }}={{ $value }}{{ end }}
{{- end }}
{{- $pools := . }}
{{- $listed := false }}
{{- range $key, $value := (first .).nodeSelector }}
{{- $values := list }}
{{- range $pools }}
{{- $values = append $values (get .nodeSelector $key) | compact | uniq }}
{{- end }}
{{- if and (not $listed) (eq (len $values) (len $pools)) }}
{{- $listed = true }}
Nodes in no pool run nothing. To list them:

  kubectl get nodes -l {{ range $name, $required := $.Values.plugin.nodeSelector }}{{ $name }}={{ $required }},{{ end }}'{{ $key }} notin ({{ join "," $values }})'

{{- end }}
{{- end }}
{{- if not $listed }}
Nodes in no pool run nothing.
{{- end }}
{{ end }}
{{- end }}
