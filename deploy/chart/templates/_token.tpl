{{/*
The Secret with the token of proxies and agents: `token` (each line is one, the first is presented), `read-token`, and `envoy.yaml`, which is the first token as
Envoy reads it. Empty: no token, because the agent is on its proxy's loopback, or because of the values.
*/}}
{{- define "endpoint-picker.token.secret" -}}
{{- if and .Values.agent.token.enabled (eq .Values.agent.mode "deployment") }}
{{- default (printf "%s-%s-token" .Release.Namespace (include "endpoint-picker.fullname" .)) .Values.agent.token.secret }}
{{- end }}
{{- end }}

{{/* The folder of the Secret's files in the agent's container. */}}
{{- define "endpoint-picker.token.agentFolder" -}}
/etc/endpoint-picker/token
{{- end }}

{{/* The same in the proxy's container. */}}
{{- define "endpoint-picker.token.proxyFolder" -}}
{{- default "/etc/endpoint-picker/token" .Values.gateway.tokenFolder }}
{{- end }}

{{/* Whether the chart mounts the Secret into the proxies' pods. */}}
{{- define "endpoint-picker.token.isMounted" -}}
{{- if and (include "endpoint-picker.token.secret" .) (ne .Values.gateway.kind "none") (not .Values.gateway.tokenFolder) }}true{{ end }}
{{- end }}

{{- define "endpoint-picker.token.volume" -}}
{ name: endpoint-picker-token, secret: { secretName: {{ include "endpoint-picker.token.secret" . }} } }
{{- end }}

{{- define "endpoint-picker.token.proxyMount" -}}
{ name: endpoint-picker-token, mountPath: {{ include "endpoint-picker.token.proxyFolder" . }}, readOnly: true }
{{- end }}

{{/* The agent's flags. */}}
{{- define "endpoint-picker.token.flags" -}}
{{- if include "endpoint-picker.token.secret" . }}
- --bearer-token-file={{ include "endpoint-picker.token.agentFolder" . }}/token
{{- if .Values.agent.token.forReads }}
- --read-token-file={{ include "endpoint-picker.token.agentFolder" . }}/read-token
{{- else }}
- --allow-unauthenticated-reads
{{- end }}
{{- end }}
{{- end }}

{{/* Settings of Envoy's cluster of the agents that add the token to the wasm filter's requests: Envoy reads it from a file, and again when the file changes. */}}
{{- define "endpoint-picker.token.clusterSettings" -}}
typed_extension_protocol_options:
  envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
    "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
    explicit_http_config: { http_protocol_options: {} }
    http_filters:
      - name: envoy.filters.http.credential_injector
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.credential_injector.v3.CredentialInjector
          credential:
            name: envoy.http.injected_credentials.generic
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.http.injected_credentials.generic.v3.Generic
              credential:
                name: agent-token
                sds_config:
                  resource_api_version: V3
                  path_config_source:
                    path: {{ include "endpoint-picker.token.proxyFolder" . }}/envoy.yaml
                    watched_directory: { path: {{ include "endpoint-picker.token.proxyFolder" . }} }
      - name: envoy.filters.http.upstream_codec
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec
{{- end }}
