{{/* The needs of the Gateway's proxies in addition to Envoy: an EnvoyProxy's spec, or Istio's changes of the gateway's Deployment. Empty: nothing. */}}
{{- define "endpoint-picker.gateway.proxySettings" -}}
{{- $settings := include (printf "endpoint-picker.gateway.%s" (ternary "istioDeployment" "envoyProxy" (eq .Values.gateway.kind "istio"))) . | fromYaml }}
{{- with mergeOverwrite $settings (deepCopy .Values.gateway.proxy) }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{- define "endpoint-picker.gateway.envoyProxy" -}}
{{- $gateway := .Values.gateway }}
{{- $mountsToken := include "endpoint-picker.token.isMounted" . }}
{{- $mounts := include "endpoint-picker.gateway.mountsModule" . }}
{{- $sidecar := dict }}
{{- if eq .Values.agent.mode "sidecar" }}
{{- $sidecar = include "endpoint-picker.sidecar" . | fromYaml }}
{{- end }}
{{- if and (eq $gateway.form "native") (not $gateway.extension) }}
dynamicModules:
  - name: endpoint-picker
    # All configurations share the module's state, also while none is in force.
    doNotClose: true
    source:
      {{- if $gateway.module.url }}
      type: Remote
      remote: { url: {{ $gateway.module.url | quote }}, sha256: {{ $gateway.module.sha256 | quote }} }
      {{- else }}
      type: Local
      local: { path: {{ include "endpoint-picker.gateway.modulePath" . }} }
      {{- end }}
{{- end }}
{{- if or $mounts $mountsToken $sidecar }}
provider:
  type: Kubernetes
  kubernetes:
    envoyDeployment:
      {{- with $sidecar.initContainers }}
      initContainers:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      pod:
        volumes:
          {{- with $sidecar.volumes }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
          {{- if $mounts }}
          - {{- include "endpoint-picker.gateway.moduleVolume" . | nindent 12 }}
          {{- end }}
          {{- if $mountsToken }}
          - {{ include "endpoint-picker.token.volume" . }}
          {{- end }}
      {{- if or $mounts $mountsToken }}
      container:
        volumeMounts:
          {{- if $mounts }}
          - {{ include "endpoint-picker.gateway.moduleMount" . }}
          {{- end }}
          {{- if $mountsToken }}
          - {{ include "endpoint-picker.token.proxyMount" . }}
          {{- end }}
      {{- end }}
{{- end }}
{{- end }}

{{- define "endpoint-picker.gateway.istioDeployment" -}}
{{- $mountsToken := include "endpoint-picker.token.isMounted" . }}
{{- $mounts := include "endpoint-picker.gateway.mountsModule" . }}
{{- $sidecar := dict }}
{{- if eq .Values.agent.mode "sidecar" }}
{{- $sidecar = include "endpoint-picker.sidecar" . | fromYaml }}
{{- end }}
{{- if or $mounts $mountsToken $sidecar }}
spec:
  template:
    spec:
      {{- with $sidecar.initContainers }}
      initContainers:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if or $mounts $mountsToken }}
      containers:
        - name: istio-proxy
          volumeMounts:
            {{- if $mounts }}
            - {{ include "endpoint-picker.gateway.moduleMount" . }}
            {{- end }}
            {{- if $mountsToken }}
            - {{ include "endpoint-picker.token.proxyMount" . }}
            {{- end }}
      {{- end }}
      volumes:
        {{- with $sidecar.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- if $mounts }}
        - {{- include "endpoint-picker.gateway.moduleVolume" . | nindent 10 }}
        {{- end }}
        {{- if $mountsToken }}
        - {{ include "endpoint-picker.token.volume" . }}
        {{- end }}
{{- end }}
{{- end }}
