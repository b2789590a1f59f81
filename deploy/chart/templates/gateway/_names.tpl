{{/* The Gateway. */}}
{{- define "endpoint-picker.gateway.name" -}}
{{- default (include "endpoint-picker.fullname" .) .Values.gateway.name }}
{{- end }}

{{/* Policies of a Gateway have to be in its namespace. */}}
{{- define "endpoint-picker.gateway.namespace" -}}
{{- default .Release.Namespace .Values.gateway.namespace }}
{{- end }}

{{/* The namespace of the proxies' pods. */}}
{{- define "endpoint-picker.gateway.proxyNamespace" -}}
{{- $default := ternary "envoy-gateway-system" (include "endpoint-picker.gateway.namespace" .) (eq .Values.gateway.kind "envoy-gateway") }}
{{- default $default .Values.gateway.proxyNamespace }}
{{- end }}

{{- define "endpoint-picker.gateway.className" -}}
{{- if .Values.gateway.className }}
{{- .Values.gateway.className }}
{{- else if eq .Values.gateway.kind "istio" }}
{{- "istio" }}
{{- else }}
{{- printf "%s-%s" .Release.Namespace (include "endpoint-picker.fullname" .) }}
{{- end }}
{{- end }}

{{/* Namespace and name of a pool, as the agent calls it. Takes (dict "root" $ "pool" .). */}}
{{- define "endpoint-picker.gateway.pool" -}}
{{- printf "%s/%s" (default .root.Release.Namespace .pool.namespace) .pool.name }}
{{- end }}

{{/* The name of a pool's filter. Several releases may share a Gateway. Takes (dict "root" $ "pool" .). */}}
{{- define "endpoint-picker.gateway.filterName" -}}
{{- printf "endpoint-picker/%s" (include "endpoint-picker.gateway.pool" .) }}
{{- end }}

{{/* The name of a pool's HTTPRoute, and of the policies for it. Takes a pool. */}}
{{- define "endpoint-picker.gateway.routeName" -}}
{{- dig "route" "name" .name . }}
{{- end }}

{{/* The host of the agent, as the proxy reaches it. */}}
{{- define "endpoint-picker.gateway.agentHost" -}}
{{- ternary "127.0.0.1" (include "endpoint-picker.agentHost" .) (eq .Values.agent.mode "sidecar") }}
{{- end }}

{{/* Envoy's cluster of the agent, for the wasm form. */}}
{{- define "endpoint-picker.gateway.agentCluster" -}}
{{- printf "endpoint-picker/%s/%s/agent" .Release.Namespace (include "endpoint-picker.fullname" .) }}
{{- end }}
