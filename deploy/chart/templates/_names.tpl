{{/* The name of the chart's objects: the release's name, with the chart's if that is not in it. */}}
{{- define "endpoint-picker.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "endpoint-picker.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Labels of every object. Takes (dict "root" $ "component" "agent"). */}}
{{- define "endpoint-picker.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{ include "endpoint-picker.selector" . }}
app.kubernetes.io/part-of: endpoint-picker
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Labels that select the pods of a component; they never change. */}}
{{- define "endpoint-picker.selector" -}}
app.kubernetes.io/name: {{ include "endpoint-picker.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The reference of an image. Takes (dict "root" $ "name" .Values.image.agent). */}}
{{- define "endpoint-picker.image" -}}
{{- $image := .root.Values.image }}
{{- with $image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .name }}
{{- if not (contains "@" .name) }}:{{ default .root.Chart.AppVersion $image.tag }}{{ end }}
{{- end }}

{{- define "endpoint-picker.serviceAccount" -}}
{{- if .Values.agent.serviceAccount.create }}
{{- default (include "endpoint-picker.fullname" .) .Values.agent.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.agent.serviceAccount.name }}
{{- end }}
{{- end }}

{{/* The watched namespaces as a JSON list; ["*"]: all. */}}
{{- define "endpoint-picker.namespaces" -}}
{{- default (list .Release.Namespace) .Values.watch.namespaces | toJson }}
{{- end }}

{{/* The manifests in the chart's own ConfigMap, by key, as YAML; empty if there are none. */}}
{{- define "endpoint-picker.manifests" -}}
{{- with .Values.pickerConfig.manifests }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* The ConfigMap of the EndpointPickerConfigs as namespace/name; empty if there is none. */}}
{{- define "endpoint-picker.configMap" -}}
{{- $config := .Values.pickerConfig }}
{{- if include "endpoint-picker.manifests" . }}
{{- printf "%s/%s-config" .Release.Namespace (include "endpoint-picker.fullname" .) }}
{{- else if contains "/" $config.configMap }}
{{- $config.configMap }}
{{- else if $config.configMap }}
{{- printf "%s/%s" .Release.Namespace $config.configMap }}
{{- end }}
{{- end }}

{{/* The Gateway whose conditions the agent writes into the status of pools; Istio writes them itself, and an extension server for each Gateway.
Empty: none. */}}
{{- define "endpoint-picker.statusGateway" -}}
{{- if and .Values.agent.status (eq .Values.gateway.kind "envoy-gateway") (not .Values.gateway.extension) }}
{{- printf "%s/%s" (include "endpoint-picker.gateway.namespace" .) (include "endpoint-picker.gateway.name" .) }}
{{- end }}
{{- end }}

{{/* The host of the agent's Service, by which every pod of the cluster reaches it. */}}
{{- define "endpoint-picker.agentHost" -}}
{{- printf "%s.%s.svc.%s" (include "endpoint-picker.fullname" .) .Release.Namespace .Values.clusterDomain }}
{{- end }}
