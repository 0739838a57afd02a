{{- /* keyblock.read: a manifest of k8s/ as YAML, with the release's labels. Takes a list: the root context, a file. */ -}}
{{- define "keyblock.read" -}}
{{- $root := index . 0 -}}
{{- $object := $root.Files.Get (index . 1) | fromYaml -}}
{{- $_ := set $object.metadata "labels" (merge (default dict $object.metadata.labels) (include "keyblock.labels" $root | fromYaml)) -}}
{{- toYaml $object -}}
{{- end -}}

{{- define "keyblock.labels" -}}
app.kubernetes.io/name: keyblock
app.kubernetes.io/part-of: keyblock
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* keyblock.settings: the variables of the ConfigMap, those of base/settings.env first. */ -}}
{{- define "keyblock.settings" -}}
{{- $settings := dict -}}
{{- range .Files.Lines "base/settings.env" -}}
{{- if and . (not (hasPrefix "#" .)) -}}
{{- $pair := splitn "=" 2 . -}}
{{- $_ := set $settings $pair._0 $pair._1 -}}
{{- end -}}
{{- end -}}
{{- if .Values.gpu -}}
{{- $_ := set $settings "KEYBLOCK_PROVIDER" "cuda" -}}
{{- $_ := set $settings "KEYBLOCK_MAX_BYTES_IN_FLIGHT" "1073741824" -}}
{{- end -}}
{{- with .Values.bundle.claim -}}
{{- $_ := set $settings "KEYBLOCK_BUNDLE" (printf "/bundles/%s" .path) -}}
{{- end -}}
{{- if or .Values.bundle.image .Values.bundle.download -}}
{{- $_ := set $settings "KEYBLOCK_BUNDLE" "/bundle" -}}
{{- end -}}
{{- with .Values.traces -}}
{{- $_ := set $settings "KEYBLOCK_OTLP_ENDPOINT" . -}}
{{- end -}}
{{- range $name, $value := .Values.settings -}}
{{- $_ := set $settings $name (kindIs "string" $value | ternary $value (toJson $value)) -}}
{{- end -}}
{{- toYaml $settings -}}
{{- end -}}
