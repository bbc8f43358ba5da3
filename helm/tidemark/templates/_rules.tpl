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
