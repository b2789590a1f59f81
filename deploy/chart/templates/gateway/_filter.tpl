{{/* The filter's own configuration, as JSON; see the README. Takes (dict "root" $ "pool" .). */}}
{{- define "endpoint-picker.gateway.filterConfig" -}}
{{- $config := dict "pool" (include "endpoint-picker.gateway.pool" .) "failureMode" (include "endpoint-picker.gateway.failureMode" .) }}
{{- if hasKey .pool "shadow" }}
{{- $_ := set $config "mode" "shadow" }}
{{- end }}
{{- if eq .root.Values.gateway.form "wasm" }}
{{- $_ := set $config "agentCluster" (include "endpoint-picker.gateway.agentCluster" .root) }}
{{- else }}
{{- $_ := set $config "agent" (include "endpoint-picker.gateway.nativeAgent" .root | fromJson) }}
{{- if not .root.Values.gateway.endpointOverride }}
{{- $_ := set $config "steering" "overrideHost" }}
{{- end }}
{{- end }}
{{- mergeOverwrite $config (deepCopy .root.Values.gateway.filter) | toJson }}
{{- end }}

{{/* The native module's way to the agents. */}}
{{- define "endpoint-picker.gateway.nativeAgent" -}}
{{- $agent := dict "addresses" (list (printf "http://%s:9095" (include "endpoint-picker.gateway.agentHost" .))) }}
{{- if include "endpoint-picker.token.secret" . }}
{{- $_ := set $agent "tokenFile" (printf "%s/token" (include "endpoint-picker.token.proxyFolder" .)) }}
{{- end }}
{{- toJson $agent }}
{{- end }}

{{/* What the filter does before the first snapshot. An ORIGINAL_DST cluster cannot balance, and would connect to any address of a subset hint. Takes (dict "root" $ "pool" .). */}}
{{- define "endpoint-picker.gateway.failureMode" -}}
{{- default (ternary "FailClose" "FailOpen" (ne "" (include "endpoint-picker.gateway.originalDst" .root))) .pool.failureMode }}
{{- end }}

{{/* Envoy's cluster for the addresses that the picker chooses, where no policy reads the header. Empty: there is one. */}}
{{- define "endpoint-picker.gateway.originalDst" -}}
{{- $gateway := .Values.gateway }}
{{- if and (eq $gateway.kind "envoy-gateway") (eq $gateway.form "wasm") (not $gateway.endpointOverride) }}
{{- printf "endpoint-picker/%s/%s/servers" .Release.Namespace (include "endpoint-picker.fullname" .) }}
{{- end }}
{{- end }}

{{/* Settings of Envoy for a wasm module, as in envoy.yaml, without its code and names. Takes (dict "root" $ "pool" .). */}}
{{- define "endpoint-picker.gateway.wasmSettings" -}}
# The filter pauses at the headers until it has read the body. Without this Envoy would hold the body too.
allow_on_headers_stop_iteration: true
# A trap ends one worker's VM, and its next request starts another. Never 1 ms, which ends Envoy 1.40.
failure_policy: FAIL_RELOAD
reload_config: { backoff: { base_interval: 0.004s } }
capability_restriction_config:
  allowed_capabilities:
    {{- range .root.Files.Lines "files/capabilities.txt" }}
    {{- if hasPrefix "allow " . }}
    {{ trimPrefix "allow " . }}: {}
    {{- end }}
    {{- end }}
configuration:
  "@type": type.googleapis.com/google.protobuf.StringValue
  value: {{ include "endpoint-picker.gateway.filterConfig" . | quote }}
{{- end }}

{{/*
The folder of the module's file in the proxy's container. Not of a version: on an upgrade, agents of both versions configure proxies of both, and each proxy has
its own version's file. Another image, and so another file, comes with another pod.
*/}}
{{- define "endpoint-picker.gateway.moduleFolder" -}}
/opt/endpoint-picker
{{- end }}

{{- define "endpoint-picker.gateway.modulePath" -}}
{{- $file := ternary "plugin.wasm" "libendpoint_picker.so" (eq .Values.gateway.form "wasm") }}
{{- default (printf "%s/%s" (include "endpoint-picker.gateway.moduleFolder" .) $file) .Values.gateway.module.path }}
{{- end }}

{{- define "endpoint-picker.gateway.moduleImage" -}}
{{- include "endpoint-picker.image" (dict "root" . "name" (get .Values.image .Values.gateway.form)) }}
{{- end }}

{{/* Whether the module is a file that has to be mounted into the proxy's pod. */}}
{{- define "endpoint-picker.gateway.mountsModule" -}}
{{- $gateway := .Values.gateway }}
{{- $isFetched := or $gateway.module.url (and (eq $gateway.form "wasm") (eq $gateway.kind "envoy-gateway")) }}
{{- if not (or $isFetched $gateway.module.path) }}true{{ end }}
{{- end }}

{{/* The volume with the module's file. */}}
{{- define "endpoint-picker.gateway.moduleVolume" -}}
name: endpoint-picker
{{- if .Values.gateway.module.volume }}
{{ toYaml .Values.gateway.module.volume }}
{{- else }}
image: { reference: {{ include "endpoint-picker.gateway.moduleImage" . | quote }}, pullPolicy: {{ .Values.image.pullPolicy }} }
{{- end }}
{{- end }}

{{- define "endpoint-picker.gateway.moduleMount" -}}
{ name: endpoint-picker, mountPath: {{ include "endpoint-picker.gateway.moduleFolder" . }}, readOnly: true }
{{- end }}

{{/* Headers by which a client could choose its server, also on routes without the picker. */}}
{{- define "endpoint-picker.gateway.clientHeaders" -}}
["x-gateway-destination-endpoint", "x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"]
{{- end }}
