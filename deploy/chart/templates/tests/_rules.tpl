{{/* What `metrics-agent check --cluster` reads: the agent's objects, the EPPs of pools, and the policies of gateways with their status. */}}
{{- define "endpoint-picker.checkRules" -}}
{{- include "endpoint-picker.readRules" . }}
- apiGroups: [""]
  resources: [services]
  verbs: [get, list]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, httproutes]
  verbs: [get, list]
- apiGroups: [gateway.envoyproxy.io]
  resources: [envoyproxies, envoyextensionpolicies, envoypatchpolicies, backendtrafficpolicies, clienttrafficpolicies]
  verbs: [get, list]
- apiGroups: [networking.istio.io]
  resources: [envoyfilters]
  verbs: [get, list]
{{- end }}
