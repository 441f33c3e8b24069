package dynamodb

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
)

func migrated(t *testing.T) (url string) {
	t.Helper()
	url = service.Shared(t).Store(t)
	if err := Migrate(t.Context(), url, Up); err != nil {
		t.Fatal(err)
	}
	return url
}

func wantSchema(t *testing.T, url string, version uint) {
	t.Helper()
	want := storage.Schema{Version: version, Compatible: min(version, 1), Needed: newest}
	if got, err := Status(t.Context(), url); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func wantRefused(t *testing.T, what string, err error, code tidemark.Code, words ...string) {
	t.Helper()
	for _, part := range words {
		if tidemark.CodeOf(err) != code || !strings.Contains(tidemark.DetailOf(err), part) {
			t.Errorf("%s: got %v, want %s and %q", what, err, code, part)
		}
	}
}

// names returns the full name of a table.
type names = func(table string) *string

// raw returns a client of a URL's tables, and a function that returns their full names.
func raw(t *testing.T, url string) (*dynamodb.Client, names) {
	t.Helper()
	to, err := endpoint.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return service.Shared(t).Client(), func(name string) *string {
		return aws.String(to.Table(name))
	}
}

func TestMigrate_up_and_down(t *testing.T) {
	url := service.Shared(t).Store(t)
	wantSchema(t, url, 0)
	wantRefused(t, "down of nothing",
		Migrate(t.Context(), url, Down), tidemark.Invalid, "there is no schema to take down")
	for range 2 { // The second time changes nothing.
		if err := Migrate(t.Context(), url, Up); err != nil {
			t.Fatal(err)
		}
		wantSchema(t, url, newest)
	}
	api, name := raw(t, url)
	expiry, err := api.DescribeTimeToLive(t.Context(), &dynamodb.DescribeTimeToLiveInput{
		TableName: name("idempotency_keys"),
	})
	if err != nil || aws.ToString(expiry.TimeToLiveDescription.AttributeName) != "expires_at" ||
		expiry.TimeToLiveDescription.TimeToLiveStatus != types.TimeToLiveStatusEnabled {
		t.Errorf("the time to live of the keys: got %+v, %v", expiry.TimeToLiveDescription, err)
	}
	for range 2 {
		for version := uint(newest); version > 0; version-- {
			wantSchema(t, url, version)
			if err := Migrate(t.Context(), url, Down); err != nil {
				t.Fatal(err)
			}
		}
		wantSchema(t, url, 0)
		// The items of before do not prevent a new migration.
		if err := Migrate(t.Context(), url, Up); err != nil {
			t.Fatal(err)
		}
	}
	wantRefused(t, "sideways", Migrate(t.Context(), url, "sideways"), tidemark.Invalid, "sideways")
	wantRefused(t, "another URL",
		Migrate(t.Context(), "dynamodb:x", Up), tidemark.Invalid, "dynamodb://REGION/PREFIX")
}

func TestMigrate_many_at_once_do_it_together(t *testing.T) {
	url := service.Shared(t).Store(t)
	errs := make([]error, 6)
	var together sync.WaitGroup
	for i := range errs {
		together.Go(func() { errs[i] = Migrate(t.Context(), url, Up) })
	}
	together.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	wantSchema(t, url, newest)
}

// Left-over tables are not taken for new ones. Messages below a foreign counter are damage, and so
// are counters without their messages. A migration down that died half-way leaves such tables. So
// does an operator who deletes the table with the version.
func TestMigrate_up_refuses_items_without_a_version(t *testing.T) {
	for _, lost := range []string{"messages", "chat_counters"} {
		t.Run(lost, func(t *testing.T) {
			url := migrated(t)
			s := openTest(t, url)
			createGroup(t, s, "c", "anna")
			if _, err := s.Append(t.Context(), drafts("c", "anna", 3, "a")); err != nil {
				t.Fatal(err)
			}
			api, name := raw(t, url)
			_, e1 := api.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
				TableName: name("chat_counters"),
				Key: map[string]types.AttributeValue{
					"chat_id": &types.AttributeValueMemberS{Value: schemaKey},
				},
			})
			_, e2 := api.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: name(lost)})
			if err := errors.Join(e1, e2); err != nil {
				t.Fatal(err)
			}
			wantSchema(t, url, 0)
			wantRefused(t, "up", Migrate(t.Context(), url, Up), tidemark.Conflict,
				"has items, and the tables have no version", "tidemark migrate down")
			wantSchema(t, url, 0)
			err := errors.Join(Migrate(t.Context(), url, Down), Migrate(t.Context(), url, Up))
			if err != nil {
				t.Fatal(err)
			}
			wantSchema(t, url, newest)
		})
	}
}

func TestMigrate_protected_tables_stay(t *testing.T) {
	url := service.Shared(t).Store(t)
	if err := Migrate(t.Context(), url+"&deletion_protection=on", Up); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "down", Migrate(t.Context(), url, Down), tidemark.Conflict,
		"is protected against deletion", "deletion_protection=off")
	wantSchema(t, url, newest)
	err := errors.Join(Migrate(t.Context(), url+"&deletion_protection=off", Up),
		Migrate(t.Context(), url, Down))
	if err != nil {
		t.Fatal(err)
	}
	wantSchema(t, url, newest-1)
}

func TestMigrate_refuses_what_needs_a_person(t *testing.T) {
	for _, tc := range []struct {
		name   string
		damage func(context.Context, *dynamodb.Client, names) error
		// The errors of the three calls, "" for none.
		status, up, down tidemark.Code
		words            string
	}{
		{"newer", func(ctx context.Context, api *dynamodb.Client, name names) error {
			return put(ctx, api, name, map[string]types.AttributeValue{
				"version":    &types.AttributeValueMemberN{Value: "3"},
				"compatible": &types.AttributeValueMemberN{Value: "3"},
			})
		}, "", tidemark.Conflict, tidemark.Conflict, "the schema has version 3, for programs " +
			"that need version 3 or a later one, and this program needs 2; run a newer program"},
		{"no number", func(ctx context.Context, api *dynamodb.Client, name names) error {
			return put(ctx, api, name, map[string]types.AttributeValue{
				"version":    &types.AttributeValueMemberN{Value: "2"},
				"compatible": &types.AttributeValueMemberS{Value: "1"},
			})
		}, tidemark.Conflict, tidemark.Conflict, tidemark.Conflict, "has no version"},
		{"no compatible program", func(
			ctx context.Context, api *dynamodb.Client, name names,
		) error {
			return put(ctx, api, name, map[string]types.AttributeValue{
				"version": &types.AttributeValueMemberN{Value: "2"},
			})
		}, tidemark.Conflict, tidemark.Conflict, tidemark.Conflict,
			"version 2, and does not say which programs may use it"},
		{"no version", func(ctx context.Context, api *dynamodb.Client, name names) error {
			return put(ctx, api, name, nil)
		}, tidemark.Conflict, tidemark.Conflict, tidemark.Conflict, "has no version"},
		{"a table is lost", func(ctx context.Context, api *dynamodb.Client, name names) error {
			_, err := api.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: name("messages")})
			return err
		}, tidemark.Conflict, tidemark.Conflict, "", "messages is missing, and the others have " +
			"the version 2; restore it"},
		{"another key", func(ctx context.Context, api *dynamodb.Client, name names) error {
			return remake(ctx, api, name, "user_id", types.BillingModePayPerRequest)
		}, tidemark.Conflict, tidemark.Conflict, tidemark.Conflict,
			"chat_counters has the key user_id S, and the definition says chat_id S"},
		{"another billing", func(ctx context.Context, api *dynamodb.Client, name names) error {
			return remake(ctx, api, name, "chat_id", types.BillingModeProvisioned)
		}, "", tidemark.Conflict, "", "chat_counters is billed as PROVISIONED"},
		{"messages expire", func(ctx context.Context, api *dynamodb.Client, name names) error {
			_, err := api.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
				TableName: name("messages"),
				TimeToLiveSpecification: &types.TimeToLiveSpecification{
					AttributeName: aws.String("x"),
					Enabled:       aws.Bool(true),
				},
			})
			return err
		}, "", tidemark.Conflict, "", "messages deletes items by their time to live (x)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			url := migrated(t)
			api, name := raw(t, url)
			if err := tc.damage(t.Context(), api, name); err != nil {
				t.Fatal(err)
			}
			_, err := Status(t.Context(), url)
			for _, said := range []struct {
				by   string
				err  error
				code tidemark.Code
			}{
				{"status", err, tc.status},
				{"up", Migrate(t.Context(), url, Up), tc.up},
				{"down", Migrate(t.Context(), url, Down), tc.down},
			} {
				if said.code == "" && said.err != nil {
					t.Errorf("%s: %v", said.by, said.err)
				}
				if said.code != "" {
					wantRefused(t, said.by, said.err, said.code, tc.words)
				}
			}
		})
	}
}

// put overwrites the item with the version.
func put(
	ctx context.Context, api *dynamodb.Client, name names,
	item map[string]types.AttributeValue,
) error {
	all := map[string]types.AttributeValue{
		"chat_id": &types.AttributeValueMemberS{Value: schemaKey},
	}
	for attribute, value := range item {
		all[attribute] = value
	}
	_, err := api.PutItem(ctx, &dynamodb.PutItemInput{TableName: name("chat_counters"), Item: all})
	return err
}

// remake replaces the counters' table.
func remake(
	ctx context.Context, api *dynamodb.Client, name names, key string,
	billing types.BillingMode,
) error {
	_, err := api.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: name("chat_counters")})
	in := dynamodb.CreateTableInput{
		TableName:   name("chat_counters"),
		BillingMode: billing,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String(key), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String(key), KeyType: types.KeyTypeHash},
		},
	}
	if billing == types.BillingModeProvisioned {
		in.ProvisionedThroughput = &types.ProvisionedThroughput{
			ReadCapacityUnits:  aws.Int64(1),
			WriteCapacityUnits: aws.Int64(1),
		}
	}
	_, e := api.CreateTable(ctx, &in)
	return errors.Join(err, e)
}
