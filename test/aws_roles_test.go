package test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage/dynamodb"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
)

// The tables of the stack, and the rights of its roles.

// awsTables returns the tables of the template, by their names without the prefix, in the words of
// migrations/dynamodb.
func awsTables(t *testing.T) map[string]map[string]any {
	t.Helper()
	tables := map[string]map[string]any{}
	for name, resource := range at(t, template(t), "Resources").(map[string]any) {
		if resource, _ := resource.(map[string]any); resource["Type"] == "AWS::DynamoDB::Table" {
			p := resource["Properties"].(map[string]any)
			if resource["DeletionPolicy"] != "Retain" ||
				resource["UpdateReplacePolicy"] != "Retain" {
				t.Errorf("%s goes with the stack, and its messages with it", name)
			}
			for _, option := range []string{
				"PointInTimeRecoverySpecification", "DeletionProtectionEnabled", "SSESpecification",
			} {
				if p[option] == nil {
					t.Errorf("%s has no %s", name, option)
				}
				delete(p, option)
			}
			sub, _ := p["TableName"].(intrinsic)
			table, prefixed := strings.CutPrefix(sub.arg.(string), "${Prefix}")
			if sub.name != "Sub" || !prefixed {
				t.Errorf("%s has the name %v, without the prefix", name, p["TableName"])
			}
			p["TableName"] = table
			if ttl, _ := p["TimeToLiveSpecification"].(map[string]any); ttl != nil {
				ttl["Enabled"] = ttl["Enabled"] == "true"
			}
			tables[table] = p
		}
	}
	return tables
}

// migrated returns the tables with their indexes after all migrations, by their names.
func migrated(t *testing.T) map[string]map[string]any {
	t.Helper()
	files, err := fs.Glob(migrations.DynamoDB, "dynamodb/*")
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]map[string]any{}
	for _, file := range files {
		text, err := migrations.DynamoDB.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var defined struct{ Tables, Indexes []map[string]any }
		if err := json.Unmarshal(text, &defined); err != nil {
			t.Fatal(err)
		}
		for _, table := range defined.Tables {
			tables[table["TableName"].(string)] = table
		}
		for _, index := range defined.Indexes {
			of := tables[index["TableName"].(string)]
			indexes, _ := of["GlobalSecondaryIndexes"].([]any)
			of["GlobalSecondaryIndexes"] = append(indexes, index["Create"])
			of["AttributeDefinitions"] = append(of["AttributeDefinitions"].([]any),
				index["AttributeDefinitions"].([]any)...)
		}
	}
	return tables
}

// TestAWS_tables_are_those_of_the_migrations compares names, keys, indexes, billing and time to
// live. Each table must have its alarms.
func TestAWS_tables_are_those_of_the_migrations(t *testing.T) {
	want := migrated(t)
	if diff := cmp.Diff(want, awsTables(t)); diff != "" || len(want) < 8 {
		t.Errorf("the stack does not make the tables of the migration (-want +got):\n%s", diff)
	}
	var watched []string
	for _, table := range at(t, template(t), "Resources", "Fn::ForEach::TableAlarms", 1).([]any) {
		watched = append(watched, table.(string))
	}
	slices.Sort(watched)
	if names := slices.Sorted(maps.Keys(want)); !slices.Equal(watched, names) {
		t.Errorf("alarms watch %q, and the tables are %q", watched, names)
	}
}

// A right is an action on a table or index, "" for all tables.
type right struct{ action, table string }

// rightsOf returns the rights of a role's policy.
func rightsOf(t *testing.T, role string) map[right]bool {
	t.Helper()
	rights := map[right]bool{}
	policy := at(t, properties(t, template(t), role), "Policies", 0, "PolicyDocument", "Statement")
	for _, statement := range policy.([]any) {
		allow, plain := statement.(map[string]any)
		if !plain { // only with a key
			continue
		}
		resources, several := allow["Resource"].([]any)
		if !several {
			resources = []any{allow["Resource"]}
		}
		var tables []string
		for _, resource := range resources {
			_, table, found := strings.Cut(resource.(intrinsic).arg.(string), ":table/${Prefix}")
			if !found || strings.Contains(table, "*") {
				t.Errorf("%s may do something with %v", role, resource)
			}
			tables = append(tables, table)
		}
		slices.Sort(tables)
		all := slices.Equal(tables, slices.Sorted(maps.Keys(awsTables(t))))
		if all {
			tables = []string{""}
		}
		for _, action := range allow["Action"].([]any) {
			name, ours := strings.CutPrefix(action.(string), "dynamodb:")
			if !ours || strings.Contains(name, "*") {
				t.Errorf("%s may do %v", role, action)
			}
			for _, table := range tables {
				rights[right{name, table}] = true
			}
		}
	}
	return rights
}

// asked starts a proxy in front of DynamoDB that notes each request. through is its URL; take
// returns what it has noted.
func asked(t *testing.T, store string) (through string, take func() map[right]bool) {
	t.Helper()
	raw, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := url.Parse(raw.Query().Get("endpoint"))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := map[right]bool{}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(endpoint) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		mu.Lock()
		seen[right{action, ""}] = true
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.Replace(store, endpoint.String(), server.URL, 1), func() map[right]bool {
		mu.Lock()
		defer mu.Unlock()
		taken := seen
		seen = map[right]bool{}
		return taken
	}
}

func actionsOf(rights map[right]bool) (names []string) {
	for r := range rights {
		if !slices.Contains(names, r.action) {
			names = append(names, r.action)
		}
	}
	slices.Sort(names)
	return names
}

// TestAWS_roles_allow_what_is_called_and_no_more makes the tables as the stack does. Then it
// observes the calls of the migration and of a server's start. The later calls of a server are in
// the sources: the methods of its client and the actions of its transactions.
func TestAWS_roles_allow_what_is_called_and_no_more(t *testing.T) {
	server := service.Shared(t)
	store := server.Store(t)
	prefix := strings.TrimPrefix(regexp.MustCompile(`//[^/]*/[^?]*`).FindString(store), "//")
	_, prefix, _ = strings.Cut(prefix, "/")
	makeTables(t, server.Client(), prefix)
	through, take := asked(t, store)

	if err := dynamodb.Migrate(t.Context(), through, dynamodb.Up); err != nil {
		t.Fatalf("migrate up, on the stack's tables: %v", err)
	}
	migrate := rightsOf(t, "MigrateRole")
	if got, want := actionsOf(take()), actionsOf(migrate); !slices.Equal(got, want) {
		t.Errorf("a migration calls %q, and its role allows %q", got, want)
	}
	for r := range migrate {
		write := r.action == "PutItem" || r.action == "GetItem"
		if write != (r.table == "chat_counters") {
			t.Errorf("the role of a migration allows %v", r)
		}
	}
	schema, err := dynamodb.Status(t.Context(), store)
	if err != nil || schema.Version != schema.Needed {
		t.Errorf("after it, the status is %+v, %v", schema, err)
	}

	s, err := dynamodb.Open(t.Context(), dynamodb.Config{URL: through})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	called := take()
	for _, name := range storeCalls(t) {
		called[right{name, ""}] = true
	}
	got, want := actionsOf(called), actionsOf(rightsOf(t, "ServeRole"))
	if !slices.Equal(got, want) {
		t.Errorf("a server calls %q, and its role allows %q", got, want)
	}
	serve := map[right]bool{}
	for r := range rightsOf(t, "ServeRole") {
		serve[r] = r.table != ""
	}
	maps.DeleteFunc(serve, func(_ right, some bool) bool { return !some })
	// A node with a ledger looks for those of it whom a restored database names (UsersNamed).
	if diff := cmp.Diff(map[right]bool{
		{"Query", "chat_counters/index/outbox"}: true, {"Scan", "chat_counters"}: true,
		{"Scan", "messages"}: true, {"Scan", "delivery_state"}: true, {"Scan", "documents"}: true,
	}, serve, cmp.AllowUnexported(right{})); diff != "" {
		t.Errorf("the rights of a server beside those on all tables (-want +got):\n%s", diff)
	}
}

// makeTables makes the tables of the template.
func makeTables(t *testing.T, client *sdk.Client, prefix string) {
	t.Helper()
	for name, table := range awsTables(t) {
		text, err := json.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}
		var in sdk.CreateTableInput
		var life sdk.UpdateTimeToLiveInput
		if err := json.Unmarshal(text, &in); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &life); err != nil {
			t.Fatal(err)
		}
		full := prefix + name
		in.TableName, life.TableName = &full, &full
		if _, err := client.CreateTable(t.Context(), &in); err != nil {
			t.Fatalf("%s: %v", full, err)
		}
		if life.TimeToLiveSpecification != nil {
			if _, err := client.UpdateTimeToLive(t.Context(), &life); err != nil {
				t.Fatal(err)
			}
		}
		if in.BillingMode != types.BillingModePayPerRequest {
			t.Errorf("%s is billed as %s", name, in.BillingMode)
		}
	}
}

// storeCalls returns the rights that the calls of the store's sources need.
func storeCalls(t *testing.T) (actions []string) {
	t.Helper()
	api, err := os.ReadFile("../storage/dynamodb/internal/call/api.go")
	if err != nil {
		t.Fatal(err)
	}
	methods := regexp.MustCompile(`\bclient\.([A-Z]\w+)`)
	for _, found := range methods.FindAllStringSubmatch(string(api), -1) {
		if found[1] != "TransactWriteItems" {
			actions = append(actions, found[1])
		}
	}
	kinds := regexp.MustCompile(`types\.(Put|Update|Delete|ConditionCheck)\{`)
	for _, pattern := range []string{
		"../storage/dynamodb/*.go", "../storage/dynamodb/internal/*/*.go",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, found := range kinds.FindAllStringSubmatch(string(source), -1) {
				actions = append(actions, found[1]+"Item")
			}
		}
	}
	if len(actions) < 8 {
		t.Fatalf("the sources call %q", actions)
	}
	return actions
}
