package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// The stack of deploy/aws. No test needs an account of AWS. cfn-lint knows what CloudFormation
// accepts, and these tests know what Tidemark needs.

const awsTemplate = "../deploy/aws/tidemark.yaml"

// TestAWS_linter_passes_the_template_and_notices_mistakes also changes the template, because a
// linter that accepts everything is no check. One run reads all templates: most of its time goes
// into CloudFormation's own rules.
func TestAWS_linter_passes_the_template_and_notices_mistakes(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(awsTemplate)
	if err != nil {
		t.Fatal(err)
	}
	mistakes := []struct{ name, old, new, want string }{
		{"as-it-is", "", "", ""},
		{
			"a-misspelt-property",
			"AttributeName: expires_at", "AttributName: expires_at", "AttributName",
		},
		{"a-reference-to-nothing", "!Ref TaskGroup", "!Ref TaskGruop", "TaskGruop"},
		{"a-mistake-in-what-is-repeated-for-each-table", "Stat: Sum", "Statt: Sum", "Stat"},
		{
			"a-condition-that-nobody-defined",
			"Condition: MakesTables", "Condition: MakeTables", "MakeTables",
		},
	}
	dir := t.TempDir()
	var files []string
	for _, tt := range mistakes {
		text := strings.Replace(string(source), tt.old, tt.new, 1)
		if tt.want != "" && text == string(source) {
			t.Fatalf("the template has no %q", tt.old)
		}
		files = append(files, filepath.Join(dir, tt.name+".yaml"))
		if err := os.WriteFile(files[len(files)-1], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command("../scripts/lint-aws", files...).CombinedOutput()
	if err == nil {
		t.Errorf("lint-aws passes all of them")
	}
	// A finding is a paragraph: first what is wrong, then in which file.
	paragraphs := strings.Split(string(out), "\n\n")
	for i, tt := range mistakes {
		told := slices.ContainsFunc(paragraphs,
			func(p string) bool {
				return strings.Contains(p, files[i]) && strings.Contains(p,
					tt.want)
			})
		if told != (tt.want != "") {
			t.Errorf("%s: want %q noticed", tt.name, tt.want)
		}
	}
	if t.Failed() {
		t.Logf("lint-aws: %v\n%s", err, out)
	}
}

// intrinsic is a function of CloudFormation: !Ref X, !Sub "…", and so on.
type intrinsic struct {
	name string
	arg  any
}

// template returns the stack as values: maps, slices, strings, and intrinsics.
func template(t *testing.T) map[string]any {
	t.Helper()
	source, err := os.ReadFile(awsTemplate)
	if err != nil {
		t.Fatal(err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(source, &document); err != nil {
		t.Fatal(err)
	}
	return valueOf(t, document.Content[0]).(map[string]any)
}

func valueOf(t *testing.T, node *yaml.Node) (value any) {
	t.Helper()
	switch node.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for i := 0; i < len(node.Content); i += 2 {
			m[node.Content[i].Value] = valueOf(t, node.Content[i+1])
		}
		value = m
	case yaml.SequenceNode:
		s := make([]any, 0, len(node.Content))
		for _, item := range node.Content {
			s = append(s, valueOf(t, item))
		}
		value = s
	case yaml.ScalarNode:
		value = node.Value
	default:
		t.Errorf("line %d: CloudFormation reads no YAML aliases", node.Line)
	}
	if tag := node.Tag; strings.HasPrefix(tag, "!") && !strings.HasPrefix(tag, "!!") {
		return intrinsic{name: tag[1:], arg: value}
	}
	return value
}

// at follows keys of maps, and indices of slices.
func at(t *testing.T, value any, path ...any) any {
	t.Helper()
	for i, step := range path {
		switch step := step.(type) {
		case string:
			m, _ := value.(map[string]any)
			value = m[step]
		case int:
			s, _ := value.([]any)
			if step >= len(s) {
				t.Fatalf("the template has nothing at %v", path[:i+1])
			}
			value = s[step]
		}
		if value == nil {
			t.Fatalf("the template has nothing at %v", path[:i+1])
		}
	}
	return value
}

// properties returns the properties of a resource.
func properties(t *testing.T, stack map[string]any, resource string) map[string]any {
	t.Helper()
	return at(t, stack, "Resources", resource, "Properties").(map[string]any)
}

// attributes returns pairs of Key and Value, or of Name and Value, as a map.
func attributes(t *testing.T, list any, key string) map[string]any {
	t.Helper()
	found := map[string]any{}
	for _, item := range list.([]any) {
		if pair, ok := item.(map[string]any); ok {
			found[pair[key].(string)] = pair["Value"]
		} else if choice, ok := item.(intrinsic); ok && choice.name == "If" {
			pair := at(t, choice.arg, 1).(map[string]any)
			found[pair[key].(string)] = pair["Value"]
			if pair["ValueFrom"] != nil {
				found[pair[key].(string)] = pair["ValueFrom"]
			}
		}
	}
	return found
}

func seconds(t *testing.T, value any) time.Duration {
	t.Helper()
	n, err := strconv.Atoi(value.(string))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(n) * time.Second
}

// only returns the one value that a name has in the code.
func only(t *testing.T, dir, name string) time.Duration {
	t.Helper()
	values := valuesOf(t, dir, name)
	for value := range values {
		if len(values) == 1 {
			return time.Duration(value)
		}
	}
	t.Fatalf("%s has %v for %s, want one value", dir, values, name)
	return 0
}

// TestAWS_load_balancer_waits_for_streams_and_not_for_closed_connections compares the load
// balancer's idle timeout. It must be above the longest silence of Tidemark, and below the time
// after which Tidemark closes idle connections.
func TestAWS_load_balancer_waits_for_streams_and_not_for_closed_connections(t *testing.T) {
	stack := template(t)
	balancer := attributes(t, properties(t, stack, "LoadBalancer")["LoadBalancerAttributes"], "Key")
	idle := seconds(t, balancer["idle_timeout.timeout_seconds"])
	for what, silent := range map[string]time.Duration{
		"a long-poll":    only(t, "transports/longpoll", "maxWait"),
		"two heartbeats": 2 * only(t, "server", "Heartbeat"),
	} {
		if idle < silent+10*time.Second {
			t.Errorf("the idle timeout is %v; %s takes %v", idle, what, silent)
		}
	}
	if closes := only(t, "transports", "idleTimeout"); idle > closes-10*time.Second {
		t.Errorf("the idle timeout is %v, and Tidemark closes idle connections after %v",
			idle, closes)
	}
	if balancer["routing.http.preserve_host_header.enabled"] != "true" {
		t.Error("the Host is not passed on, and the Origin of browsers is compared with it")
	}
	if _, logs := balancer["access_logs.s3.enabled"]; logs {
		t.Error("the access log would hold tickets")
	}
	if targets := properties(t, stack, "Targets"); targets["HealthCheckPath"] != "/readyz" {
		t.Errorf("health is asked at %v", targets["HealthCheckPath"])
	}
	if got := at(t, properties(t, stack, "Http"),
		"DefaultActions", 0, "RedirectConfig", "Protocol"); got != "HTTPS" {
		t.Errorf("HTTP is sent on to %v", got)
	}
}

// TestAWS_task_runs_as_the_image_wants: the task is read-only and without rights, has variables
// that serve knows, and has more time to stop than it needs.
func TestAWS_task_runs_as_the_image_wants(t *testing.T) {
	t.Parallel() // It waits more than it works.
	stack := template(t)
	known := serveVariables(t)
	for task, command := range map[string][]any{
		"ServeTask": {"serve"}, "MigrateTask": {"migrate", "up"},
	} {
		container := at(t, properties(t, stack, task), "ContainerDefinitions", 0).(map[string]any)
		if got := container["Command"].([]any); !slices.Equal(got, command) {
			t.Errorf("%s runs %q, want %q", task, got, command)
		}
		if container["ReadonlyRootFilesystem"] != "true" ||
			at(t, container, "LinuxParameters", "Capabilities", "Drop", 0) != "ALL" {
			t.Errorf("%s may write, or has rights", task)
		}
		if mode := at(t, container, "LogConfiguration", "Options", "mode"); mode != "non-blocking" {
			t.Errorf("%s waits for its logs", task)
		}
		variables := attributes(t, container["Environment"], "Name")
		if container["Secrets"] != nil {
			for name, from := range attributes(t, container["Secrets"], "Name") {
				variables[name] = from
			}
		}
		for name := range variables {
			if !slices.Contains(known, name) {
				t.Errorf("%s has the variable %s, which serve does not know", task, name)
			}
		}
		if variables["TIDEMARK_STORE"] == nil {
			t.Errorf("%s has no store", task)
		}
	}
	container := at(t, properties(t, stack, "ServeTask"), "ContainerDefinitions",
		0).(map[string]any)
	if stop := container["StopTimeout"].(string) + "s"; !longerThanDrain(t, stop) {
		t.Errorf("the task is killed after %s, which is not longer than a drain", stop)
	}
	secret := attributes(t, container["Secrets"], "Name")["TIDEMARK_JWT_SECRET"]
	if want := (intrinsic{"Ref", "JwtSecretArn"}); secret != want {
		t.Errorf("the secret comes from %v", secret)
	}
	if attributes(t, container["Environment"], "Name")["TIDEMARK_JWT_SECRET"] != nil {
		t.Error("the secret stands in the task's definition")
	}
}

// TestAWS_readme_names_what_the_stack_has: parameters, outputs, and the tables that stay.
func TestAWS_readme_names_what_the_stack_has(t *testing.T) {
	page, err := os.ReadFile("../deploy/aws/README.md")
	if err != nil {
		t.Fatal(err)
	}
	stack, text := template(t), string(page)
	parameters, outputs := at(t, stack, "Parameters").(map[string]any), at(t, stack,
		"Outputs").(map[string]any)
	for name, parameter := range parameters {
		if len(at(t, parameter, "Description").(string)) < 10 {
			t.Errorf("the parameter %s is not described", name)
		}
	}
	named := 0
	assigned := regexp.MustCompile(`\b([A-Z][A-Za-z]+)=[^=\s]`)
	for _, found := range assigned.FindAllStringSubmatch(text, -1) {
		named++
		if parameters[found[1]] == nil {
			t.Errorf("the README sets %s, which is no parameter", found[1])
		}
	}
	for _, found := range regexp.MustCompile(`\$\(output (\w+)\)`).FindAllStringSubmatch(text, -1) {
		named++
		if outputs[found[1]] == nil {
			t.Errorf("the README reads %s, which is no output", found[1])
		}
	}
	if named < 15 {
		t.Errorf("only %d parameters and outputs were found", named)
	}
	// The commands set each parameter without a default.
	for name, parameter := range parameters {
		_, has := parameter.(map[string]any)["Default"]
		if !has && !strings.Contains(text, name+"=") {
			t.Errorf("the README deploys without %s, which has no default", name)
		}
	}
}

// TestAWS_several_tasks_share_a_Valkey: only the tasks reach it, and over TLS. It refuses writes
// rather than evict presence. Without it, more than one task is refused.
func TestAWS_several_tasks_share_a_Valkey(t *testing.T) {
	stack := template(t)
	container := at(t, properties(t, stack, "ServeTask"), "ContainerDefinitions",
		0).(map[string]any)
	url, _ := attributes(t, container["Environment"], "Name")["TIDEMARK_REDIS"].(intrinsic)
	if want := (intrinsic{
		"Sub", "rediss://${Valkey.PrimaryEndPoint.Address}:${Valkey.PrimaryEndPoint.Port}",
	}); url != want {
		t.Errorf("TIDEMARK_REDIS is %v, want %v", url, want)
	}
	valkey := properties(t, stack, "Valkey")
	if valkey["TransitEncryptionEnabled"] != "true" ||
		valkey["TransitEncryptionMode"] != "required" {
		t.Error("the Valkey answers without TLS")
	}
	if got := at(t, properties(t, stack, "ValkeyParameters"),
		"Properties", "maxmemory-policy"); got != "noeviction" {
		t.Errorf("maxmemory-policy is %v", got)
	}
	ingress := properties(t, stack, "ValkeyGroup")["SecurityGroupIngress"].([]any)
	if len(ingress) != 1 ||
		at(t, ingress, 0, "SourceSecurityGroupId") != (intrinsic{"Ref", "TaskGroup"}) {
		t.Errorf("the Valkey is reached by %v", ingress)
	}
	rule := at(t, stack, "Rules", "SeveralTasksNeedRedis", "Assertions", 0, "Assert").(intrinsic)
	contains := at(t, rule.arg, 1).(intrinsic)
	if rule.name != "Or" || contains.name != "Contains" ||
		!slices.Equal(at(t, contains.arg, 0).([]any), []any{"0", "1"}) {
		t.Errorf("how many tasks do without is said by %v", rule)
	}
}

// TestAWS_readme_has_the_settings_of_the_stack: what the README tells those to set who have a load
// balancer is what the linted stack sets. The stack leaves stickiness and routing alone.
func TestAWS_readme_has_the_settings_of_the_stack(t *testing.T) {
	page := string(readFile(t, "../deploy/aws/README.md"))
	found := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindStringSubmatch(page)
	if found == nil {
		t.Fatal("the README has no block of settings")
	}
	var block yaml.Node
	must(t, yaml.Unmarshal([]byte(found[1]), &block))
	stack := template(t)
	balancer, targets := properties(t, stack, "LoadBalancer"), properties(t, stack, "Targets")
	for name, value := range valueOf(t, block.Content[0]).(map[string]any) {
		list, isList := value.([]any)
		switch {
		case !isList && targets[name] != value:
			t.Errorf("%s is %v in the README, and %v in the stack", name, value, targets[name])
		case isList:
			resource := targets
			if name == "LoadBalancerAttributes" {
				resource = balancer
			}
			set := attributes(t, resource[name], "Key")
			for key, value := range attributes(t, list, "Key") {
				if set[key] != value {
					t.Errorf("%s is %v in the README, and %v in the stack", key, value, set[key])
				}
			}
		}
	}
	for key := range attributes(t, targets["TargetGroupAttributes"], "Key") {
		if strings.HasPrefix(key, "stickiness.") || strings.HasPrefix(key, "load_balancing.") {
			t.Errorf("the README says that %s stays as it is, and the stack sets it", key)
		}
	}
}
