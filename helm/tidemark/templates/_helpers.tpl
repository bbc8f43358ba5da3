{{/* One release per namespace: names are fixed, so that a user finds the same objects everywhere. */}}

{{- define "tidemark.labels" -}}
app.kubernetes.io/name: tidemark
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{/* What never changes between versions: selectors are immutable. */}}
{{- define "tidemark.selector" -}}
app.kubernetes.io/name: tidemark
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "tidemark.image" -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* Both pods run unprivileged, also where PodSecurity `restricted` is enforced. */}}
{{- define "tidemark.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "tidemark.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where pods may run, and how their images are had. */}}
{{- define "tidemark.placement" -}}
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* What the operator does with the resources it looks after. */}}
{{- define "tidemark.rules" -}}
- apiGroups: [compute.tidemark.dev]
  resources: [computeinstances, computereplicas, datasources, dataflows]
  # patch: finalizers and nothing else of an object; spec is its owner's
  verbs: [get, list, watch, patch]
- apiGroups: [compute.tidemark.dev]
  resources: [computeinstances/status, computereplicas/status, datasources/status, dataflows/status]
  verbs: [get, patch, update]
- apiGroups: [compute.tidemark.dev]
  # to own stored plans where OwnerReferencesPermissionEnforcement is on
  resources: [computeinstances/finalizers, computereplicas/finalizers, datasources/finalizers, dataflows/finalizers]
  verbs: [update]
- apiGroups: [apps]
  # stored plans
  resources: [controllerrevisions]
  verbs: [get, list, watch, create, patch, update, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}
