{{/* Values that must agree. The schema checks each value by itself. */}}
{{- define "kata-vfio.checkValues" -}}
{{- with .Values.runtimeClass }}
{{- if .enabled }}
{{- include "kata-vfio.checkRuntimeClass" (list . "runtimeClass" $) }}
{{- end }}
{{- if .nic.enabled }}
{{- include "kata-vfio.checkRuntimeClass" (list .nic "runtimeClass.nic" $) }}
{{- include "kata-vfio.checkNICHandler" $ }}
{{- if and .enabled (eq .name .nic.name) }}
{{- fail (printf "runtimeClass.name and runtimeClass.nic.name are both %s: set two names" .name) }}
{{- end }}
{{- if and .enabled (eq .handler .nic.handler) (ne (toJson .overhead) (toJson .nic.overhead)) }}
{{- fail (printf "runtimeClass.handler and runtimeClass.nic.handler are both %s, with two overheads: a handler's VMs have one default_memory, and the smaller overhead lets the kernel kill them; set two handlers" .handler) }}
{{- end }}
{{- end }}
{{- end }}
{{- include "kata-vfio.checkShared" . }}
{{- include "kata-vfio.checkSanitizers" . }}
{{- include "kata-vfio.checkTenancy" . }}
{{- include "kata-vfio.checkScrapers" . }}
{{- end }}

{{/* Whether the network policies admit a Prometheus that is told to scrape. */}}
{{- define "kata-vfio.checkScrapers" -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) }}
{{- range list "podMonitor" "serviceMonitor" }}
{{- if (index $.Values.metrics .).enabled }}
{{- fail (printf "metrics.%s is enabled, and networkPolicy.metricsFrom is empty, so that nobody reaches metrics: add Prometheus, such as {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether shared GPUs have their controller: without it, their pods would wait. */}}
{{- define "kata-vfio.checkShared" -}}
{{- $pool := .Values.sharedPool }}
{{- if and $pool.enabled (not $pool.drivers) }}
{{- fail "sharedPool.enabled is true, and sharedPool.drivers is empty: name the DRA driver that shares the GPUs, such as gpu.nvidia.com" }}
{{- end }}
{{- if and $pool.enabled (semverCompare "<1.37.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "sharedPool.enabled is true, and the cluster has Kubernetes %s: sharing needs DeviceTaintRules of 1.37" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- if eq .Values.nodeConfig.source "ConfigMap" }}
{{- range .Values.nodeConfig.devices }}
{{- if and .sharedWith (not (and $pool.enabled (has .sharedWith $pool.drivers))) }}
{{- fail (printf "nodeConfig.devices shares GPUs with %s, and sharedPool does not: their pods would wait for the controller; set sharedPool.enabled, and add %s to sharedPool.drivers" .sharedWith .sharedWith) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether the stages can run, and rules name sanitizers that exist: the plugin would refuse their devices. */}}
{{- define "kata-vfio.checkSanitizers" -}}
{{- $sanitizers := .Values.sanitizers }}
{{- if and $sanitizers.profiles (eq $sanitizers.namespace .Release.Namespace) }}
{{- fail (printf "sanitizers.namespace is the release's namespace, %s: set one of their own, where nobody else has rights" $sanitizers.namespace) }}
{{- end }}
{{- range $name, $profile := $sanitizers.profiles }}
{{- $class := include "kata-vfio.stageRuntimeClass" $profile }}
{{- if not (has $class $.Values.allowedRuntimeClasses) }}
{{- fail (printf "sanitizers.profiles.%s.runtimeClass is %s, and allowedRuntimeClasses is %s: the plugin gives devices to VMs only; add the name to allowedRuntimeClasses" $name $class (toJson $.Values.allowedRuntimeClasses)) }}
{{- end }}
{{- end }}
{{- if eq .Values.nodeConfig.source "ConfigMap" }}
{{- range .Values.nodeConfig.devices }}
{{- $rule := .sanitize | default dict }}
{{- if and .sanitize (not (hasKey ($sanitizers.profiles | default dict) $rule.profile)) }}
{{- fail (printf "nodeConfig.devices names the sanitizer %s, and sanitizers.profiles does not have it: no claim would get the devices; add the profile" $rule.profile) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether tenants are known where domains belong to one, and their claims can get their domains' devices. */}}
{{- define "kata-vfio.checkTenancy" -}}
{{- if and .Values.tenancy.enabled (not (include "kata-vfio.mutatingVersion" .)) }}
{{- fail "tenancy.enabled is true, and the API server has no MutatingAdmissionPolicy, which lets a tenant's claims have the devices of its own domains: remove the API server's --feature-gates=MutatingAdmissionPolicy=false; for helm template, add --api-versions admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}
{{- end }}
{{- if and .Values.tenancy.reserveDomains (not .Values.tenancy.enabled) }}
{{- fail "tenancy.reserveDomains is true, and tenancy.enabled is false: nobody would know for whom to reserve domains; set tenancy.enabled" }}
{{- end }}
{{- if eq .Values.nodeConfig.source "ConfigMap" }}
{{- range .Values.nodeConfig.devices }}
{{- if and .exclusive (not $.Values.tenancy.enabled) }}
{{- fail (printf "nodeConfig.devices has a rule with exclusive: %s, and tenancy.enabled is false: nobody would know who is a tenant, and no claim would get the devices; set tenancy.enabled" (toJson .exclusive)) }}
{{- end }}
{{- if and .reserveDomains (not $.Values.tenancy.reserveDomains) }}
{{- fail "nodeConfig.devices has a rule with reserveDomains, and tenancy.reserveDomains is false: pods would wait for an answer that nobody gives; set tenancy.reserveDomains" }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether policies and plugin accept a RuntimeClass, from (list class path root). */}}
{{- define "kata-vfio.checkRuntimeClass" -}}
{{- $class := index . 0 }}
{{- $path := index . 1 }}
{{- $values := (index . 2).Values }}
{{- if not (has $class.name $values.allowedRuntimeClasses) }}
{{- fail (printf "%s.name is %s, and allowedRuntimeClasses is %s: the admission policies would refuse its pods; add the name to allowedRuntimeClasses" $path $class.name (toJson $values.allowedRuntimeClasses)) }}
{{- end }}
{{- if and (eq $values.nodeConfig.source "ConfigMap") (not (has $class.handler $values.nodeConfig.allowedHandlers)) }}
{{- fail (printf "%s.handler is %s, and nodeConfig.allowedHandlers is %s: the plugin would refuse the claims of its pods; add the handler to nodeConfig.allowedHandlers" $path $class.handler (toJson $values.nodeConfig.allowedHandlers)) }}
{{- end }}
{{- end }}

{{/* Whether bootstrap can install the handler of the RuntimeClass for NICs. */}}
{{- define "kata-vfio.checkNICHandler" -}}
{{- if include "kata-vfio.nicHandler" . }}
{{- $containers := .Values.bootstrap.blueprint.containers | default dict }}
{{- if and (hasKey $containers "nicHandler") (not $containers.nicHandler) }}
{{- fail "runtimeClass.nic.enabled is true, and bootstrap.blueprint.containers.nicHandler is false: no node would have the handler kata-vfio; remove nicHandler from the blueprint" }}
{{- end }}
{{- if $containers.hotPlug }}
{{- fail "runtimeClass.nic.enabled is true, and bootstrap.blueprint.containers.hotPlug is true: the handler kata-vfio plugs devices when the VM starts; use one of them" }}
{{- end }}
{{- end }}
{{- end }}
