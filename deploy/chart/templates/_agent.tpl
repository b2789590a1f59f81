{{/* The agent's container, without what differs between a Deployment and a sidecar. Takes (dict "root" $ "listen" "0.0.0.0:9095"). */}}
{{- define "endpoint-picker.agentContainer" -}}
{{- $values := .root.Values }}
{{- $name := include "endpoint-picker.fullname" .root }}
{{- $host := printf "%s.%s" $name .root.Release.Namespace -}}
name: metrics-agent
image: {{ include "endpoint-picker.image" (dict "root" .root "name" $values.image.agent) }}
imagePullPolicy: {{ $values.image.pullPolicy }}
args:
  - --kubernetes
  {{- range include "endpoint-picker.namespaces" .root | fromJsonArray }}
  - --kubernetes-namespace={{ . }}
  {{- end }}
  {{- with $values.watch.pool }}
  - --pool={{ . }}
  {{- end }}
  - --rules={{ $values.pickerConfig.rules }}
  {{- with include "endpoint-picker.configMap" .root }}
  - --picker-config-map={{ . }}
  {{- end }}
  {{- if $values.gateway.bodyBasedRouting }}
  - --base-model-config-maps
  {{- end }}
  {{- if $values.agent.events }}
  - --kubernetes-events
  {{- end }}
  {{- with include "endpoint-picker.statusGateway" .root }}
  - --kubernetes-status={{ . }}
  {{- end }}
  - --listen={{ .listen }}
  {{- if eq $values.agent.mode "deployment" }}
  - --listen-health={{ $values.agent.listenAddress }}:9096
  {{- range list $name $host (printf "%s.svc" $host) (include "endpoint-picker.agentHost" .root) }}
  - --allowed-host={{ . }}
  {{- end }}
  {{- end }}
  {{- with include "endpoint-picker.token.flags" .root }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if $values.gateway.extension }}
  {{- include "endpoint-picker.extension.flags" .root | nindent 2 }}
  {{- end }}
  {{- with $values.agent.kvEvents }}
  {{- if ne .source "off" }}
  - --kv-events={{ .source }}
  {{- end }}
  {{- if and .tokenizers (eq .source "off") }}
  {{- fail "agent.kvEvents.tokenizers have no effect while agent.kvEvents.source is off; set it to discover or to the servers' ports" }}
  {{- end }}
  {{- if and .tokenIds (eq .source "off") }}
  {{- fail "agent.kvEvents.tokenIds have no effect while agent.kvEvents.source is off; set it to discover or to the servers' ports" }}
  {{- end }}
  {{- range .tokenIds }}
  - {{ printf "--kv-events-token-ids=%s" . | quote }}
  {{- end }}
  {{- range $at, $tokenizer := .tokenizers }}
  - {{ printf "--tokenizer=%s=/tokenizers/%d/%s" $tokenizer.model $at (default "" $tokenizer.path) | quote }}
  {{- end }}
  {{- end }}
  - --log={{ $values.agent.log }}
  {{- range $values.agent.extraArgs }}
  - {{ . | quote }}
  {{- end }}
{{- with $values.agent.extraEnv }}
env:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.agent.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "endpoint-picker.containerSecurity" .root | nindent 2 }}
{{- end }}

{{/* The folders of tokenizers in the agent's container, and their volumes. */}}
{{- define "endpoint-picker.tokenizers.mounts" -}}
{{- range $at, $tokenizer := .Values.agent.kvEvents.tokenizers }}
- { name: tokenizer-{{ $at }}, mountPath: /tokenizers/{{ $at }}, readOnly: true }
{{- end }}
{{- end }}

{{- define "endpoint-picker.tokenizers.volumes" -}}
{{- range $at, $tokenizer := .Values.agent.kvEvents.tokenizers }}
- name: tokenizer-{{ $at }}
  {{- toYaml $tokenizer.volume | nindent 2 }}
{{- end }}
{{- end }}

{{- define "endpoint-picker.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "endpoint-picker.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{/*
The part of a proxy's pod that runs the agent: an init container that is restarted, which is Kubernetes' form of a sidecar, and its token.
The token is of the pod's ServiceAccount, and only the agent's container has it: Envoy Gateway's and Istio's pods mount none by themselves.
*/}}
{{- define "endpoint-picker.sidecar" -}}
initContainers:
  - {{- include "endpoint-picker.agentContainer" (dict "root" . "listen" "127.0.0.1:9095") | nindent 4 }}
      {{- include "endpoint-picker.podSecurity" . | nindent 6 }}
    # The agent ends after the proxy, and a fault of it does not make the proxy unready.
    restartPolicy: Always
    volumeMounts:
      - { name: metrics-agent-token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true }
      {{- with include "endpoint-picker.tokenizers.mounts" . }}
      {{- trim . | nindent 6 }}
      {{- end }}
      {{- with .Values.agent.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: metrics-agent-token
    projected:
      # 0444: the agent has a user of its own.
      defaultMode: 292
      sources:
        - serviceAccountToken: { path: token, expirationSeconds: 3607 }
        - configMap: { name: kube-root-ca.crt, items: [{ key: ca.crt, path: ca.crt }] }
        - downwardAPI: { items: [{ path: namespace, fieldRef: { apiVersion: v1, fieldPath: metadata.namespace } }] }
  {{- with include "endpoint-picker.tokenizers.volumes" . }}
  {{- trim . | nindent 2 }}
  {{- end }}
  {{- with .Values.agent.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
