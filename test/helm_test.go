package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
)

const helmChart = "../deploy/helm/tidemark"

// TestHelm_a_node_is_replaced_when_its_successor_is_ready checks the chart with its default values.
func TestHelm_a_node_is_replaced_when_its_successor_is_ready(t *testing.T) {
	all := manifests(t, "")
	want := []string{
		"ConfigMap", "Deployment", "Job", "PodDisruptionBudget", "Service", "ServiceAccount",
	}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(all))); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	deployment := all["Deployment"]
	const pod, container = "spec.template.spec.", "spec.template.spec.containers.0."
	for path, want := range map[string]any{
		"spec.replicas": 3,
		"spec.strategy.rollingUpdate.maxUnavailable": 0,
		// The drain delay does what a preStop hook would do.
		container + "lifecycle":                   nil,
		container + "readinessProbe.httpGet.path": "/readyz",
		// A lost database is no reason for a restart.
		container + "livenessProbe.httpGet.path":               "/healthz",
		container + "startupProbe.httpGet.path":                "/healthz",
		container + "securityContext.readOnlyRootFilesystem":   true,
		container + "securityContext.capabilities.drop.0":      "ALL",
		container + "securityContext.allowPrivilegeEscalation": false,
		pod + "securityContext.runAsNonRoot":                   true,
		pod + "topologySpreadConstraints.0.labelSelector": map[string]any{
			"matchLabels": field(all["Service"], "spec.selector"),
		},
		pod + "volumes.0.configMap.name":         field(all["ConfigMap"], "metadata.name"),
		pod + "serviceAccountName":               field(all["ServiceAccount"], "metadata.name"),
		pod + "enableServiceLinks":               false,
		container + "livenessProbe.httpGet.port": field(all["Service"], "spec.ports.0.targetPort"),
		container + "env.2": map[string]any{
			"name":      "TIDEMARK_NODE",
			"valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "metadata.name"}},
		},
		container + "envFrom.0.secretRef.name": field(all["Job"],
			container+"env.0.valueFrom.secretKeyRef.name"),
	} {
		if diff := cmp.Diff(want, field(deployment, path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}

	// Every selector selects the nodes, and not the job that migrates.
	node, job := field(deployment, "spec.template.metadata.labels"), field(all["Job"],
		"spec.template.metadata.labels")
	for kind, path := range map[string]string{
		"Deployment":          "spec.selector.matchLabels",
		"Service":             "spec.selector",
		"PodDisruptionBudget": "spec.selector.matchLabels",
	} {
		selector := field(all[kind], path)
		if !selects(selector, node) || selects(selector, job) {
			t.Errorf("%s selects %v; the labels of a node are %v, those of the job %v",
				kind, selector, node, job)
		}
	}
	variables := serveVariables(t)
	named := regexp.MustCompile(`TIDEMARK_[A-Z_]+`)
	for _, variable := range named.FindAllString(fmt.Sprint(deployment, all["Job"]), -1) {
		if !slices.Contains(variables, variable) {
			t.Errorf("the variable %s is none of the server's", variable)
		}
	}
}

// TestHelm_the_rendered_configuration_is_the_servers starts the server with the chart's file, and
// with enough time to stop.
func TestHelm_the_rendered_configuration_is_the_servers(t *testing.T) {
	all := manifests(t,
		"metrics: {enabled: true}\n"+
			"config: {log-level: debug, drain-delay: 2s, drain-deadline: 45s, allow-origin: "+
			"[https://app.example.com]}\nterminationGracePeriodSeconds: 56\n")
	text, _ := field(all["ConfigMap"], "data.tidemark\\.yaml").(string)
	p := newProcess(t)
	file := filepath.Join(p.dir, "tidemark.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := siteOf(p, "--config", file)
	response, err := http.Get("http://" + s.address + "/metrics")
	if err != nil || response.StatusCode != 200 {
		t.Errorf("/metrics, which metrics.enabled opens: %v, %v", response, err)
	}

	// The default values, with the default of terminationGracePeriodSeconds.
	all = manifests(t, "")
	text, _ = field(all["ConfigMap"], "data.tidemark\\.yaml").(string)
	within := regexp.MustCompile(`(?m)^drain-deadline: (\d+)s$`).FindStringSubmatch(text)
	if within == nil {
		t.Fatalf("no drain-deadline in %s", text)
	}
	// The server ends a stop that hangs after a third more.
	deadline, _ := strconv.Atoi(within[1])
	grace, _ := field(all["Deployment"],
		"spec.template.spec.terminationGracePeriodSeconds").(int)
	if grace < deadline*4/3+10 {
		t.Errorf("a node is killed %d s after SIGTERM; its stop may take %d s, and a third more",
			grace, deadline)
	}
}

// TestHelm_values_in_several_shapes renders the chart with options on and off. Kubernetes' own
// types decode the result.
func TestHelm_values_in_several_shapes(t *testing.T) {
	t.Run("everything", func(t *testing.T) {
		all := manifests(t, `
image:
  repository: registry.example.com/tidemark
  digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
imagePullSecrets: [{name: registry}]
secretName: chat-secret
config: {jwks-url: "https://id.example.com/keys", jwt-issuer: "https://id.example.com"}
extraEnv: [{name: AWS_REGION, value: eu-central-1}]
migrate: {secretName: chat-owner}
service: {type: LoadBalancer, port: 8443, annotations: {a/b: c}}
ingress: {enabled: true, className: nginx, host: chat.example.com, tlsSecretName: chat-tls}
autoscaling: {enabled: true, minReplicas: 2}
podDisruptionBudget: {maxUnavailable: 25%}
serviceAccount: {name: chat, annotations: {eks.amazonaws.com/role-arn: "arn:aws:iam::1:role/chat"}}
metrics: {enabled: true, serviceMonitor: {enabled: true, labels: {release: prometheus}}}
networkPolicy:
  enabled: true
  from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}]
  egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 5432}, {port: 6379}]}]
nodeSelector: {kubernetes.io/arch: amd64}
tolerations: [{key: chat, operator: Exists}]
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]
priorityClassName: high
podAnnotations: {note: "1"}
podLabels: {team: chat}
`)
		for _, tc := range []struct {
			kind, path string
			want       any
		}{
			{"Deployment", "spec.replicas", nil}, // the autoscaler sets it
			{"Deployment", "spec.template.spec.containers.0.image",
				"registry.example.com/tidemark@sha256:" +
					"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
			{
				"Deployment",
				"spec.template.spec.containers.0.envFrom.0.secretRef.name", "chat-secret",
			},
			{"Deployment", "spec.template.spec.serviceAccountName", "chat"},
			{"Deployment", "spec.template.metadata.labels.team", "chat"},
			{
				"Job",
				"spec.template.spec.containers.0.env.0.valueFrom.secretKeyRef.name", "chat-owner",
			},
			{"Job", "spec.template.spec.serviceAccountName", nil}, // it does not exist yet
			{"HorizontalPodAutoscaler", "spec.minReplicas", 2},
			{"HorizontalPodAutoscaler", "spec.scaleTargetRef.name", "tidemark"},
			{"Ingress", "spec.rules.0.http.paths.0.path", "/api/v1"},
			{"Ingress", "spec.rules.0.http.paths.2", nil}, // neither /metrics nor /readyz
			{"Ingress", "spec.tls.0.hosts.0", "chat.example.com"},
			{"NetworkPolicy", "spec.egress.0.ports.0.port", 53},
			{"NetworkPolicy", "spec.egress.1.ports.1.port", 6379},
			{"PodDisruptionBudget", "spec.maxUnavailable", "25%"},
			{"ServiceMonitor", "spec.endpoints.0.path", "/metrics"},
			{"ServiceMonitor", "metadata.labels.release", "prometheus"},
		} {
			diff := cmp.Diff(tc.want, field(all[tc.kind], tc.path))
			if diff != "" || all[tc.kind] == nil {
				t.Errorf("%s %s (-want +got):\n%s", tc.kind, tc.path, diff)
			}
		}
		if !selects(field(all["ServiceMonitor"], "spec.selector.matchLabels"),
			field(all["Service"], "metadata.labels")) {
			t.Error("the ServiceMonitor does not select the Service")
		}
	})
	t.Run("as little as possible", func(t *testing.T) {
		all := manifests(t,
			"replicas: 1\nmigrate: {enabled: false}\npodDisruptionBudget: {enabled: false}\n"+
				"serviceAccount: {create: false}\nconfig: null\n"+
				"topologySpreadConstraints: []\ngoMemoryLimit: ''\nresources: {}\n")
		kinds := []string{"ConfigMap", "Deployment", "Service"}
		if diff := cmp.Diff(kinds, slices.Sorted(maps.Keys(all))); diff != "" {
			t.Errorf("kinds (-want +got):\n%s", diff)
		}
	})
	for name, values := range map[string]string{
		"a flag that is misspelt":            "config: {drain-dely: 5s}",
		"a flag that is the chart's":         "config: {listen: ':80'}",
		"a secret among what is none":        "config: {store: 'postgres://a:b@c/d'}",
		"a value that is misspelt":           "replica: 3",
		"a value of another type":            "replicas: three",
		"no field of Kubernetes":             "resources: {limit: {memory: 1Gi}}",
		"another type than Kubernetes wants": "tolerations: [{tolerationSeconds: soon}]",
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			if out, err := renderChart(t, values); err == nil {
				t.Errorf("%s was rendered:\n%s", values, out)
			}
		})
	}
}

// TestHelm_config_has_every_flag compares the chart's schema with `serve --help`.
func TestHelm_config_has_every_flag(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(helmChart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Config struct{ Properties map[string]any }
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(maps.Keys(schema.Properties.Config.Properties))
	var want []string
	flags := regexp.MustCompile(`(?m)^ {6}--([a-z-]+)\b`)
	ours := []string{
		"cluster-advertise", "cluster-listen", "config", "dev", "kafka", "listen", "node", "redis",
		"store",
	}
	for _, flag := range flags.FindAllStringSubmatch(serveHelp(t), -1) {
		// The chart or its Secret sets these.
		if !slices.Contains(ours, flag[1]) {
			want = append(want, flag[1])
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("flags of serve, and of config in values.schema.json (-want +got):\n%s", diff)
	}
}

// manifests lints and renders the chart with values, and returns the result by kind.
func manifests(t *testing.T, values string) map[string]map[string]any {
	t.Helper()
	out, err := renderChart(t, values)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]any{}
	for decoder := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var manifest map[string]any
		if err := decoder.Decode(&manifest); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		kind, _ := manifest["kind"].(string)
		if all[kind] != nil {
			t.Errorf("there are two of the kind %s", kind)
		}
		all[kind] = manifest
	}
}

// buildHelm builds tools/helm. Even a build without changes takes a second, so it runs once.
var buildHelm = sync.OnceValues(exec.Command("../scripts/helm-deps").CombinedOutput)

// renderChart runs tools/helm.
func renderChart(t *testing.T, values string) ([]byte, error) {
	t.Helper()
	if out, err := buildHelm(); err != nil {
		t.Fatalf("scripts/helm-deps: %v\n%s", err, out)
	}
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("../.build/helm", helmChart, file).Output()
	if err != nil {
		return out, fmt.Errorf("%w: %s", err, stderrOf(err))
	}
	return out, nil
}

// field returns the value at a path of keys and indices with dots between them, nil if there is
// none. \. is a dot in a key.
func field(value any, path string) any {
	for _, key := range strings.Split(strings.ReplaceAll(path, `\.`, "\x00"), ".") {
		switch in := value.(type) {
		case map[string]any:
			value = in[strings.ReplaceAll(key, "\x00", ".")]
		case []any:
			index, err := strconv.Atoi(key)
			if err != nil || index >= len(in) {
				return nil
			}
			value = in[index]
		default:
			return nil
		}
	}
	return value
}

// selects reports whether a selector is not empty and is a part of labels.
func selects(selector, labels any) bool {
	of, in := selector.(map[string]any), labels.(map[string]any)
	for key, value := range of {
		if in[key] != value {
			return false
		}
	}
	return len(of) > 0
}
