{{/*
Envoy's cluster of the agents. Takes (dict "root" $ "name" "metrics-agent").

All proxies use one agent, because the hash of the constant header is the same everywhere, and the other as soon as that one fails its health check: readings of
one agent and of another are never mixed. See docs/reference/chart.md.
*/}}
{{- define "endpoint-picker.agentCluster" -}}
name: {{ .name }}
connect_timeout: 1s
{{- if eq .root.Values.agent.mode "sidecar" }}
type: STATIC
{{- else }}
type: STRICT_DNS
dns_lookup_family: V4_PREFERRED
dns_refresh_rate: 2s
load_balancing_policy:
  policies:
    - typed_extension_config:
        name: envoy.load_balancing_policies.ring_hash
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.ring_hash.v3.RingHash
          consistent_hashing_lb_config:
            hash_policy: [{ header: { header_name: ":authority" } }]
health_checks:
  - timeout: 1s
    interval: 1s
    no_traffic_interval: 1s
    unhealthy_threshold: 1
    healthy_threshold: 1
    http_health_check: { path: /readyz }
{{- end }}
load_assignment:
  cluster_name: {{ .name }}
  endpoints:
    - lb_endpoints:
        - endpoint:
            address:
              socket_address:
                {{- if eq .root.Values.agent.mode "sidecar" }}
                address: 127.0.0.1
                {{- else }}
                address: {{ include "endpoint-picker.agentHost" .root }}
                {{- end }}
                port_value: 9095
            {{- if eq .root.Values.agent.mode "deployment" }}
            health_check_config: { port_value: 9096 }
            {{- end }}
{{- if include "endpoint-picker.token.secret" .root }}
{{ include "endpoint-picker.token.clusterSettings" .root }}
{{- end }}
{{- end }}
