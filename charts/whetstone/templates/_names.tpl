{{/* Labels of every object. */}}
{{- define "whetstone.labels" -}}
app.kubernetes.io/name: whetstone
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: whetstone
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Labels that select the operator's pod. */}}
{{- define "whetstone.selector" -}}
app.kubernetes.io/name: whetstone
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{/* Namespace and labels of what a Prometheus chooses by its labels. */}}
{{- define "whetstone.monitored" -}}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "whetstone.labels" . | nindent 2 }}
  {{- with .Values.monitoring.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Namespace selector of the watched namespaces. */}}
{{- define "whetstone.watched" -}}
{{- with .Values.watchNamespaces -}}
matchNames:
  {{- toYaml . | nindent 2 }}
{{- else -}}
any: true
{{- end }}
{{- end }}

{{/* Reference of an image: (list context name). */}}
{{- define "whetstone.image" -}}
{{- $context := index . 0 -}}
{{- $name := index . 1 -}}
{{- $images := $context.Values.images -}}
{{- with get $images $name -}}
{{- . -}}
{{- else -}}
{{- $registry := required (printf "images.registry is empty: give the registry that holds the images, or images.%s in full" $name) $images.registry -}}
{{- printf "%s/whetstone/%s:%s" $registry $name ($images.tag | default $context.Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{/* Variables of proxies, in both cases: programs read one or the other. What is in the cluster needs none. */}}
{{- define "whetstone.proxies" -}}
{{- $proxy := .Values.proxy -}}
{{- if or $proxy.http $proxy.https -}}
{{- $own := list "localhost" "127.0.0.1" "::1" ".svc" ".cluster.local" "$(KUBERNETES_SERVICE_HOST)" -}}
{{- $variables := dict "HTTP_PROXY" $proxy.http "HTTPS_PROXY" $proxy.https "NO_PROXY" (join "," (concat $own $proxy.except)) -}}
{{- range $name, $value := $variables }}
{{- if $value }}
- name: {{ $name }}
  value: {{ $value | quote }}
- name: {{ lower $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Rules inside the watched namespaces. The comment above a rule is its reason in docs/rbac.md. */}}
{{- define "whetstone.rules" -}}
# The objects that are carried out, and those that they refer to.
- apiGroups: [whetstone.dev]
  resources: [modelservers, loratrainingjobs, benchmarkruns]
  verbs: [get, list, watch]
# Conditions and figures; nothing else of these objects is written.
- apiGroups: [whetstone.dev]
  resources: [modelservers/status, loratrainingjobs/status, benchmarkruns/status]
  verbs: [patch]
# Owner references with blockOwnerDeletion, where OwnerReferencesPermissionEnforcement is on (OpenShift).
- apiGroups: [whetstone.dev]
  resources: [modelservers/finalizers, loratrainingjobs/finalizers, benchmarkruns/finalizers]
  verbs: [update]
# The engines of a ModelServer; they are deleted with their owner by Kubernetes.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [list, watch, create, patch]
# The budget that lets drains take one engine pod at a time.
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [list, watch, create, patch]
# Services of servers and of trainings over several pods.
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch, create, patch]
# Desired states and configurations that pods read, and the users' own that specs name.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, list, watch, create, patch]
# Trainings and benchmarks: created once, suspended with their object, deleted to make way for another try.
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# Where Kueue is installed: what a queued Job waits for, and whether it may run while its object is suspended.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [list, patch]
# Each server's Secret of token and API keys is made, and Secrets that objects name are read by name; none can be listed.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
# How engines and Jobs stand, and whose pod a report comes from.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# Asked with a dry run only: would the API server take the pods of a spec.podTemplate?
- apiGroups: [""]
  resources: [pods]
  verbs: [create]
# The last words of an engine that ended, and of a training that hangs.
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
# Whether the claims that objects name exist, and the workspace that a training asks for.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, create]
# Whether the runner's account exists where a benchmark needs it.
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get]
# Conditions that change are told as Events, and equal ones counted up.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [get, create, patch]
{{- end }}
