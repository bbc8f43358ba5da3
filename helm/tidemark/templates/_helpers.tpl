{{/* One release per namespace: names are fixed, so that a user finds the same objects everywhere. */}}

{{/* What never changes between versions: selectors are immutable. */}}
{{- define "tidemark.selector" -}}
app.kubernetes.io/name: tidemark
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "tidemark.ownLabels" -}}
{{ include "tidemark.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* The chart's own, then the object's, then those of all objects: each key once, and the first that says it wins. */}}
{{- define "tidemark.labels" -}}
{{- $own := include "tidemark.ownLabels" . }}
{{- $others := merge (dict) (.labels | default dict) (.root.Values.commonLabels | default dict) }}
{{- range $key, $_ := fromYaml $own }}
{{- $_ := unset $others $key }}
{{- end }}
{{- $own }}
{{- with $others }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Of a namespaced object: root, component, name; where wanted, namespace, labels and annotations. */}}
{{- define "tidemark.metadata" -}}
name: {{ .name }}
namespace: {{ .namespace | default .root.Release.Namespace }}
{{ include "tidemark.marks" . }}
{{- end }}

{{/* Labels and annotations. */}}
{{- define "tidemark.marks" -}}
labels:
  {{- include "tidemark.labels" . | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tidemark.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* All pods run unprivileged, also where PodSecurity `restricted` is enforced. */}}
{{- define "tidemark.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ int64 . }}
runAsGroup: {{ int64 . }}
fsGroup: {{ int64 . }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tidemark.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "tidemark.pulling" -}}
{{- with .Values.imagePullSecrets -}}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where a component's pods may run: root, component, at (the component's values). */}}
{{- define "tidemark.placement" -}}
{{- with .at.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if .at.affinity }}
affinity: {{- toYaml .at.affinity | nindent 2 }}
{{- else }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "tidemark.selector" . | nindent 14 }}
{{- end }}
{{- if .at.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- $own := dict "labelSelector" (dict "matchLabels" (include "tidemark.selector" . | fromYaml)) }}
  {{- range .at.topologySpreadConstraints }}
  - {{- toYaml (merge (dict) . $own) | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* Metadata of a component's pods: what selects them cannot be overwritten. */}}
{{- define "tidemark.podMetadata" -}}
labels: {{- merge (include "tidemark.selector" . | fromYaml) .at.podLabels .root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge (dict) .at.podAnnotations .root.Values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Where the default instance is made: somewhere that is looked after. */}}
{{- define "tidemark.defaultNamespace" -}}
{{- $namespace := .Values.defaultInstance.namespace | default .Release.Namespace }}
{{- if and .Values.watchNamespaces (not (has $namespace .Values.watchNamespaces)) }}
{{- fail (printf "defaultInstance.namespace: nobody looks after %s; watchNamespaces are %s" $namespace (join ", " .Values.watchNamespaces)) }}
{{- end }}
{{- $namespace }}
{{- end }}
