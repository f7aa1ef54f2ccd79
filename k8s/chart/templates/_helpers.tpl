{{- define "fastlane.name" -}}
{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- end }}

{{- define "fastlane.account" -}}
{{ .Values.serviceAccount.name | default (include "fastlane.name" .) }}
{{- end }}

{{- define "fastlane.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "fastlane.selector" -}}
app.kubernetes.io/name: fastlane-agent
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "fastlane.labels" -}}
{{ include "fastlane.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "fastlane.configuration" -}}
{{- $paths := dict "kubelet" .Values.kubeletDirectory "cdi" .Values.cdiDirectory -}}
{{- $kubernetes := dict "pools" .Values.pools "api" .Values.api "memif-links" .Values.memifLinks -}}
{{- $kubernetes := merge $kubernetes $paths -}}
{{ dict "kubernetes" $kubernetes | toPrettyJson }}
{{- end }}

{{- /* Not empty if the agent may serve the node by DRA: Kubernetes 1.34. */}}
{{- define "fastlane.dra" -}}
{{- $version := .Capabilities.KubeVersion.Version -}}
{{- if and (ne .Values.api "device-plugin") (semverCompare ">= 1.34.0-0" $version) -}}
true
{{- end -}}
{{- end }}

{{- /* Not empty if limits of pods are served by DRA: Kubernetes 1.36 (KEP-5004). */}}
{{- define "fastlane.limits" -}}
{{- if and (include "fastlane.dra" .) (semverCompare ">= 1.36.0-0" .Capabilities.KubeVersion.Version) -}}
true
{{- end -}}
{{- end }}

{{- /* Not empty if a pool has TAP devices. */}}
{{- define "fastlane.taps" -}}
{{- range .Values.pools }}{{ if .taps }}true{{ end }}{{ end }}
{{- end }}
