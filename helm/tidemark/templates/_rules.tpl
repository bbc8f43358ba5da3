{{/* What the operator does with the resources it looks after. */}}
{{- define "tidemark.rules" -}}
- apiGroups: [compute.tidemark.dev]
  resources: [computeinstances, computereplicas, datasources, dataflows]
  verbs: [get, list, watch]
- apiGroups: [compute.tidemark.dev]
  # finalizers; the spec is its owner's, and edited only as SQL's ALTER by a user who may patch it
  resources: [datasources, dataflows]
  verbs: [patch]
{{- if and .Values.pgwire.enabled .Values.pgwire.ddl }}
- apiGroups: [compute.tidemark.dev]
  # CREATE, ALTER and DROP of SQL, each for a user who may do the same; an edit is a patch of the spec
  resources: [dataflows, datasources]
  verbs: [create, delete]
{{- end }}
{{- if and .Values.pgwire.enabled .Values.pgwire.passwords }}
- apiGroups: [""]
  # whether a ServiceAccount logs in by a password, and which Secret has it
  resources: [serviceaccounts]
  verbs: [get]
{{- end }}
- apiGroups: [compute.tidemark.dev]
  resources: [computeinstances/status, computereplicas/status, datasources/status, dataflows/status]
  verbs: [patch]
- apiGroups: [compute.tidemark.dev]
  # to own stored plans where OwnerReferencesPermissionEnforcement is on
  resources: [computeinstances/finalizers, computereplicas/finalizers, datasources/finalizers, dataflows/finalizers]
  verbs: [update]
- apiGroups: [apps]
  # stored plans, which nobody changes, and what is still to be deleted
  resources: [controllerrevisions]
  verbs: [get, list, create, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  # list: why a replica has no pod
  verbs: [create, list]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [list, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, create, patch, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [configmaps]
  # get: schemas of topics that DataSources name (schema.configMap)
  verbs: [create, get, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [""]
  # certificates of replicas, which have names of their own; what Spark authenticates by, which is only made; and
  # passwords of logins, which are only read
  resources: [secrets]
  verbs: [get, create, update]
{{- end }}

{{/* All that Spark's driver asks of the API server, found by taking verbs away. */}}
{{- define "tidemark.driverRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [create, get, list, watch, delete, deletecollection]
{{- end }}
