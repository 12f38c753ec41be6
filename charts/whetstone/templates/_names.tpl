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

{{/* Rules inside the watched namespaces. */}}
{{- define "whetstone.rules" -}}
- apiGroups: [whetstone.dev]
  resources: [modelservers, loratrainingjobs, benchmarkruns]
  verbs: [get, list, watch]
- apiGroups: [whetstone.dev]
  resources: [modelservers/status, loratrainingjobs/status, benchmarkruns/status]
  verbs: [get, patch]
# Owner references with blockOwnerDeletion need this where OwnerReferencesPermissionEnforcement is on (OpenShift).
- apiGroups: [whetstone.dev]
  resources: [modelservers/finalizers, loratrainingjobs/finalizers, benchmarkruns/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
# Where Kueue is installed: what a queued Job waits for, and spec.suspend of its owner.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [list, patch]
- apiGroups: [""]
  resources: [services, configmaps]
  verbs: [get, list, watch, create, patch, delete]
# Tokens of servers are read by name and made; other Secrets cannot be listed.
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
# Asked with a dry run only: would the API server take the pods of a spec.podTemplate?
- apiGroups: [""]
  resources: [pods]
  verbs: [create]
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [""]
  resources: [persistentvolumeclaims, serviceaccounts]
  verbs: [get]
# The workspace that a training job asks for.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [get, create, patch]
{{- end }}
