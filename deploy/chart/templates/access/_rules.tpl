{{/* What the agent reads in each watched namespace: no secrets. */}}
{{- define "endpoint-picker.readRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [inference.networking.k8s.io]
  resources: [inferencepools]
  verbs: [get, list, watch]
- apiGroups: [inference.networking.x-k8s.io]
  resources: [inferencepools, inferenceobjectives, inferencemodelrewrites, inferencemodels]
  verbs: [get, list, watch]
- apiGroups: [llm-d.ai]
  resources: [inferenceobjectives, inferencemodelrewrites]
  verbs: [get, list, watch]
{{- end }}

{{/* The same, and what the agent writes: nothing of the objects themselves. */}}
{{- define "endpoint-picker.rules" -}}
{{- include "endpoint-picker.readRules" . }}
{{- if .Values.gateway.bodyBasedRouting }}
# Those with the label of base models; a right cannot name it.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch]
{{- end }}
{{- if .Values.gateway.extension }}
- apiGroups: [gateway.networking.k8s.io]
  resources: [httproutes]
  verbs: [get, list, watch]
{{- end }}
{{- if or .Values.gateway.extension (include "endpoint-picker.statusGateway" .) }}
- apiGroups: [inference.networking.k8s.io, inference.networking.x-k8s.io]
  resources: [inferencepools/status]
  verbs: [patch]
{{- end }}
{{- if .Values.agent.events }}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end }}
{{- end }}

{{/* Whom these rights are for. */}}
{{- define "endpoint-picker.subjects" -}}
{{- if eq .Values.agent.mode "deployment" }}
- kind: ServiceAccount
  name: {{ include "endpoint-picker.serviceAccount" . }}
  namespace: {{ .Release.Namespace }}
{{- else }}
{{- range .Values.agent.sidecar.serviceAccounts }}
- kind: ServiceAccount
  name: {{ .name }}
  namespace: {{ .namespace }}
{{- end }}
{{- end }}
{{- end }}
