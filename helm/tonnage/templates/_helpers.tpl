{{- define "tonnage.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains "tonnage" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-tonnage" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tonnage.selector" -}}
app.kubernetes.io/name: tonnage
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: service
{{- end -}}

{{- define "tonnage.labels" -}}
{{ include "tonnage.selector" . }}
{{ include "tonnage.release" . }}
{{- end -}}

{{- define "tonnage.testLabels" -}}
app.kubernetes.io/name: tonnage
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: test
{{- end -}}

{{- define "tonnage.release" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "tonnage.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "tonnage.serviceAccount" -}}
{{- if .Values.serviceAccount.name -}}
{{ .Values.serviceAccount.name }}
{{- else if .Values.serviceAccount.create -}}
{{ include "tonnage.fullname" . }}
{{- else -}}
default
{{- end -}}
{{- end -}}

{{- define "tonnage.keys" -}}
{{- if .Values.auth.existingSecret -}}
{{ .Values.auth.existingSecret }}
{{- else if .Values.auth.keys -}}
{{ include "tonnage.fullname" . }}-keys
{{- end -}}
{{- end -}}

{{- define "tonnage.cache" -}}
{{- if or .Values.redis.url .Values.redis.existingSecret .Values.redis.bundled.enabled -}}
used
{{- end -}}
{{- end -}}

{{- define "tonnage.overlay" -}}
{{- if .Values.catalog.existingConfigMap -}}
{{ .Values.catalog.existingConfigMap }}
{{- else if .Values.catalog.overlay -}}
{{ include "tonnage.fullname" . }}-catalog
{{- end -}}
{{- end -}}
