{{/* Values that must agree. The schema checks each value by itself. */}}
{{- define "kata-vfio.checkValues" -}}
{{- with .Values.runtimeClass }}
{{- if .nic.enabled }}
{{- if and .enabled (eq .name .nic.name) }}
{{- fail (printf "runtimeClass.name and runtimeClass.nic.name are both %s: set two names" .name) }}
{{- end }}
{{- if and .enabled (eq .handler .nic.handler) (ne (toJson .overhead) (toJson .nic.overhead)) }}
{{- fail (printf "runtimeClass.handler and runtimeClass.nic.handler are both %s, with two overheads: a handler's VMs have one default_memory, and the smaller overhead lets the kernel kill them; set two handlers" .handler) }}
{{- end }}
{{- end }}
{{- end }}
{{- include "kata-vfio.checkShared" . }}
{{- with .Values.deviceClasses }}
{{- if and .gpu.alias .accelerator.enabled }}
{{- fail "deviceClasses.gpu.alias and deviceClasses.accelerator.enabled both make the DeviceClass accelerator.kata-vfio.dev: set one of them to false" }}
{{- end }}
{{- end }}
{{- include "kata-vfio.checkSanitizers" . }}
{{- include "kata-vfio.checkTenancy" . }}
{{- include "kata-vfio.checkProtection" . }}
{{- include "kata-vfio.checkScrapers" . }}
{{- include "kata-vfio.checkPools" . }}
{{- $pools := dict }}
{{- include "kata-vfio.setPools" (list $pools .) }}
{{- range $pools.roots }}
{{- include "kata-vfio.checkNodes" . }}
{{- end }}
{{- end }}

{{/* The values of a pool's nodes, which may differ from another pool's. */}}
{{- define "kata-vfio.checkNodes" -}}
{{- with .Values.runtimeClass }}
{{- if .enabled }}
{{- include "kata-vfio.checkRuntimeClass" (list . "runtimeClass" $) }}
{{- end }}
{{- if .nic.enabled }}
{{- include "kata-vfio.checkRuntimeClass" (list .nic "runtimeClass.nic" $) }}
{{- include "kata-vfio.checkNICHandler" $ }}
{{- end }}
{{- end }}
{{- include "kata-vfio.checkNodeConfig" . }}
{{- include "kata-vfio.checkRules" . }}
{{- if .Values.bootstrap.enabled }}
{{- include "kata-vfio.checkHotPlug" . }}
{{- include "kata-vfio.checkEarlyBinding" . }}
{{- if and (dig "fabric" "activate" list .Values.bootstrap.blueprint) (eq .Values.nodeConfig.source "ConfigMap") (kindIs "map" .Values.nodeConfig.fabric) }}
{{- fail (printf "%sbootstrap.blueprint.fabric.activate and nodeConfig.fabric are both set: partitions would be active that the plugin has not activated, and it would refuse claims for their GPUs; remove one of them" (include "kata-vfio.inPool" .)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether the cluster has what the rules of a node config need. */}}
{{- define "kata-vfio.checkRules" -}}
{{- if eq .Values.nodeConfig.source "ConfigMap" }}
{{- $in := include "kata-vfio.inPool" . }}
{{- $pool := .Values.sharedPool }}
{{- $sanitizers := .Values.sanitizers.profiles | default dict }}
{{- range .Values.nodeConfig.devices }}
{{- if and .sharedWith (not (and $pool.enabled (has .sharedWith $pool.drivers))) }}
{{- fail (printf "%snodeConfig.devices shares GPUs with %s, and sharedPool does not: their pods would wait for the controller; set sharedPool.enabled, and add %s to sharedPool.drivers" $in .sharedWith .sharedWith) }}
{{- end }}
{{- $rule := .sanitize | default dict }}
{{- if and .sanitize (not (hasKey $sanitizers $rule.profile)) }}
{{- fail (printf "%snodeConfig.devices names the sanitizer %s, and sanitizers.profiles does not have it: no claim would get the devices; add the profile" $in $rule.profile) }}
{{- end }}
{{- if and .exclusive (not $.Values.tenancy.enabled) }}
{{- fail (printf "%snodeConfig.devices has a rule with exclusive: %s, and tenancy.enabled is false: nobody would know who is a tenant, and no claim would get the devices; set tenancy.enabled" $in (toJson .exclusive)) }}
{{- end }}
{{- if and .reserveDomains (not $.Values.tenancy.reserveDomains) }}
{{- fail (printf "%snodeConfig.devices has a rule with reserveDomains, and tenancy.reserveDomains is false: pods would wait for an answer that nobody gives; set tenancy.reserveDomains" $in) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether each value of the node config gets to the nodes. */}}
{{- define "kata-vfio.checkNodeConfig" -}}
{{- $config := .Values.nodeConfig }}
{{- if eq $config.source "Node" }}
{{- range list "devices" "gpuSlices" "fabric" "virtualFunctions" "addressPools" }}
{{- $value := index $config . }}
{{- if or $value (and (eq . "devices") (kindIs "slice" $value)) (and (eq . "fabric") (kindIs "map" $value)) }}
{{- fail (printf "%snodeConfig.%s is set, and nodeConfig.source is Node: plugins read /etc/kata-vfio/node.yaml of their nodes only, and would ignore it; write it there, or set nodeConfig.source to ConfigMap" (include "kata-vfio.inPool" $) .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether the plugin permits what bootstrap's handlers do. */}}
{{- define "kata-vfio.checkHotPlug" -}}
{{- if dig "containers" "hotPlug" false .Values.bootstrap.blueprint }}
{{- $permitted := false }}
{{- range .Values.plugin.extraArgs }}
{{- if regexMatch "^--hot-plug(=(1|t|T|true|True|TRUE))?$" . }}
{{- $permitted = true }}
{{- end }}
{{- end }}
{{- if not $permitted }}
{{- fail (printf "%sbootstrap.blueprint.containers.hotPlug is true, and plugin.extraArgs has no --hot-plug: the plugin would refuse containers with devices (NotInSandbox), because their VMs boot without them; add --hot-plug to plugin.extraArgs" (include "kata-vfio.inPool" .)) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether functions that are bound in the initial RAM file system are bound in the node config too. Bootstrap itself can read
only the node's own file. The chart knows no functions: it refuses where no rule can make one bound. */}}
{{- define "kata-vfio.checkEarlyBinding" -}}
{{- $blueprint := .Values.bootstrap.blueprint }}
{{- if and (eq .Values.nodeConfig.source "ConfigMap") (dig "kernel" "earlyBinding" false $blueprint) }}
{{- range dig "vfio" "keepOff" list $blueprint }}
{{- if not (include "kata-vfio.mayBeBound" (list . $.Values.nodeConfig.devices)) }}
{{- fail (printf "%sbootstrap.blueprint has kernel.earlyBinding and names %s in vfio.keepOff, and nodeConfig.devices has no rule with policy: bound for it: with onDemand, the node would lack the function's driver while no claim has it; set policy: bound in its rule, or remove kernel.earlyBinding" (include "kata-vfio.inPool" $) .) }}
{{- end }}
{{- end }}
{{- if dig "vfio" "keepOffMatching" list $blueprint }}
{{- $bound := false }}
{{- range $.Values.nodeConfig.devices }}
{{- if and (eq (toString .policy) "bound") (not .exclude) }}{{ $bound = true }}{{ end }}
{{- end }}
{{- if not $bound }}
{{- fail (printf "%sbootstrap.blueprint has kernel.earlyBinding and vfio.keepOffMatching, and nodeConfig.devices has no rule with policy: bound: with onDemand, the node would lack the functions' driver while no claim has them; set policy: bound in their rule, or remove kernel.earlyBinding" (include "kata-vfio.inPool" $)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Not empty if a function can be bound, from (list address rules): the first rule that matches decides, and one without the address may
match, unless it names others. */}}
{{- define "kata-vfio.mayBeBound" -}}
{{- $address := index . 0 | lower }}
{{- $decided := false }}
{{- range index . 1 }}
{{- $addresses := list }}
{{- range .match.addresses }}
{{- $addresses = append $addresses (lower .) }}
{{- end }}
{{- $named := has $address $addresses }}
{{- if and (not $decided) (or $named (not $addresses)) }}
{{- if and (eq (toString .policy) "bound") (not .exclude) }}
{{- $decided = true }}true
{{- else if and $named (eq (len .match) 1) }}
{{- $decided = true }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether network policies and the plugin admit a Prometheus that is told to scrape. */}}
{{- define "kata-vfio.checkScrapers" -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) }}
{{- range list "podMonitor" "serviceMonitor" }}
{{- if (index $.Values.metrics .).enabled }}
{{- fail (printf "metrics.%s is enabled, and networkPolicy.metricsFrom is empty, so that nobody reaches metrics: add Prometheus, such as {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}" .) }}
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.metrics }}
{{- if and .serviceMonitor.enabled (not .open) (not .readers) }}
{{- fail "metrics.serviceMonitor is enabled, and metrics.readers is empty: the plugin would refuse each scrape (403), and KataVFIOPluginDown would fire for all nodes; add Prometheus' account, such as {kind: ServiceAccount, name: prometheus-k8s, namespace: monitoring}" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether shared GPUs have their controller, without which their pods would wait, and a scheduler that heeds its rules. */}}
{{- define "kata-vfio.checkShared" -}}
{{- $pool := .Values.sharedPool }}
{{- if and $pool.enabled (not $pool.drivers) }}
{{- fail "sharedPool.enabled is true, and sharedPool.drivers is empty: name the DRA driver that shares the GPUs, such as gpu.nvidia.com" }}
{{- end }}
{{- $ignores := "KAI ignores DeviceTaintRules and binding conditions, so that a VM and a container would get one GPU" }}
{{- if and $pool.enabled .Values.kai.countGPUs }}
{{- fail (printf "sharedPool.enabled and kai.countGPUs are true: %s; set kai.countGPUs to false and have kube-scheduler schedule all pods with GPUs, or share none" $ignores) }}
{{- end }}
{{- if and $pool.enabled (eq .Values.admission.tenants.schedulerName "kai-scheduler") }}
{{- fail (printf "sharedPool.enabled is true, and admission.tenants.schedulerName is kai-scheduler: %s; leave admission.tenants.schedulerName empty, or share no GPUs" $ignores) }}
{{- end }}
{{- if and $pool.enabled (semverCompare "<1.37.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "sharedPool.enabled is true, and the cluster has Kubernetes %s: sharing needs DeviceTaintRules of 1.37" .Capabilities.KubeVersion.Version) }}
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
{{- end }}

{{/* Whether tenants are known where domains belong to one, and their claims can get their domains' devices. */}}
{{- define "kata-vfio.checkTenancy" -}}
{{- if and .Values.tenancy.enabled (not (include "kata-vfio.mutatingVersion" .)) }}
{{- fail "tenancy.enabled is true, and the API server has no MutatingAdmissionPolicy, which lets a tenant's claims have the devices of its own domains: remove the API server's --feature-gates=MutatingAdmissionPolicy=false; for helm template, add --api-versions admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}
{{- end }}
{{- if and .Values.tenancy.reserveDomains (not .Values.tenancy.enabled) }}
{{- fail "tenancy.reserveDomains is true, and tenancy.enabled is false: nobody would know for whom to reserve domains; set tenancy.enabled" }}
{{- end }}
{{- end }}

{{/* Whether claims can get the finalizer. */}}
{{- define "kata-vfio.checkProtection" -}}
{{- if and .Values.admission.protectClaims.enabled (not (include "kata-vfio.mutatingVersion" .)) }}
{{- fail "admission.protectClaims.enabled is true, and the API server has no MutatingAdmissionPolicy, which adds the finalizer to claims: remove the API server's --feature-gates=MutatingAdmissionPolicy=false; for helm template, add --api-versions admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" }}
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
{{- fail (printf "%s%s.handler is %s, and nodeConfig.allowedHandlers is %s: the plugin would refuse the claims of its pods; add the handler to nodeConfig.allowedHandlers" (include "kata-vfio.inPool" (index . 2)) $path $class.handler (toJson $values.nodeConfig.allowedHandlers)) }}
{{- end }}
{{- end }}

{{/* Whether bootstrap can install the handler of the RuntimeClass for NICs. */}}
{{- define "kata-vfio.checkNICHandler" -}}
{{- if include "kata-vfio.nicHandler" . }}
{{- $containers := .Values.bootstrap.blueprint.containers | default dict }}
{{- if and (hasKey $containers "nicHandler") (not $containers.nicHandler) }}
{{- fail (printf "%sruntimeClass.nic.enabled is true, and bootstrap.blueprint.containers.nicHandler is false: no node would have the handler kata-vfio; remove nicHandler from the blueprint" (include "kata-vfio.inPool" .)) }}
{{- end }}
{{- if $containers.hotPlug }}
{{- fail (printf "%sruntimeClass.nic.enabled is true, and bootstrap.blueprint.containers.hotPlug is true: the handler kata-vfio plugs devices when the VM starts; use one of them" (include "kata-vfio.inPool" .)) }}
{{- end }}
{{- end }}
{{- end }}
