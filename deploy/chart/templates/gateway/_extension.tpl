{{/* The agents as Envoy Gateway's extension server. */}}

{{/* Names of its objects begin like this. */}}
{{- define "endpoint-picker.extension.name" -}}
{{- printf "%s-extension" (include "endpoint-picker.fullname" .) }}
{{- end }}

{{/* The host of its Service. */}}
{{- define "endpoint-picker.extension.host" -}}
{{- printf "%s.%s.svc.%s" (include "endpoint-picker.extension.name" .) .Release.Namespace .Values.clusterDomain }}
{{- end }}

{{/* Envoy Gateway's own namespace. */}}
{{- define "endpoint-picker.extension.controllerNamespace" -}}
{{- default "envoy-gateway-system" .Values.gateway.controllerNamespace }}
{{- end }}

{{/* The module's configuration without a pool, which the extension server gives to each route. */}}
{{- define "endpoint-picker.extension.filterConfig" -}}
{{- $own := dict "agent" (include "endpoint-picker.gateway.nativeAgent" . | fromJson) }}
{{- if .Values.gateway.bodyBasedRouting }}
{{- $_ := set $own "bodyBasedRouting" true }}
{{- end }}
{{- if .Values.gateway.listModels }}
{{- $_ := set $own "listModels" true }}
{{- end }}
{{- mergeOverwrite $own (deepCopy .Values.gateway.filter) | toJson }}
{{- end }}

{{/* The agent's flags. */}}
{{- define "endpoint-picker.extension.flags" -}}
- --extension-server={{ .Values.agent.listenAddress }}:9097
- --extension-cert=/etc/endpoint-picker/extension/tls.crt
- --extension-key=/etc/endpoint-picker/extension/tls.key
- --extension-client-ca=/etc/endpoint-picker/extension/ca.crt
- --extension-module={{ include "endpoint-picker.gateway.modulePath" . }}
- --extension-filter-config=/etc/endpoint-picker/filter/filter.json
- --extension-picker-service={{ .Release.Namespace }}/{{ include "endpoint-picker.fullname" . }}
{{- range .Values.pools }}
- --extension-pool={{ include "endpoint-picker.gateway.pool" (dict "root" $ "pool" .) }}
{{- end }}
{{- end }}

{{- define "endpoint-picker.extension.mounts" -}}
- { name: extension, mountPath: /etc/endpoint-picker/extension, readOnly: true }
- { name: extension-filter, mountPath: /etc/endpoint-picker/filter, readOnly: true }
{{- end }}

{{- define "endpoint-picker.extension.volumes" -}}
- { name: extension, secret: { secretName: {{ include "endpoint-picker.extension.name" . }}-server } }
- { name: extension-filter, configMap: { name: {{ include "endpoint-picker.extension.name" . }} } }
{{- end }}

{{/* The entry in Envoy Gateway's configuration. */}}
{{- define "endpoint-picker.extension.entry" -}}
name: {{ include "endpoint-picker.fullname" . }}
backendResources:
  - { group: inference.networking.k8s.io, version: v1, kind: InferencePool }
hooks:
  xdsTranslator:
    post: [Route, Endpoints, Translation]
    translation:
      listener: { includeAll: true }
      route: { includeAll: true }
      cluster: { includeAll: true }
      # The agents get no keys of TLS.
      secret: { includeAll: false }
service:
  fqdn: { hostname: {{ include "endpoint-picker.extension.host" . }}, port: 9097 }
  tls:
    # The authority, in the key tls.crt.
    certificateRef: { name: {{ include "endpoint-picker.extension.name" . }}-ca, namespace: {{ .Release.Namespace }} }
    clientCertificateRef: { name: {{ include "endpoint-picker.extension.name" . }}-client, namespace: {{ .Release.Namespace }} }
# A translation that fails publishes nothing, and the proxies keep what they have.
failOpen: false
# The whole configuration of a Gateway is one message.
maxMessageSize: 64Mi
{{- end }}
