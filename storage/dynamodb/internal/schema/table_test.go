package schema

import (
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/migrations"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
)

const key = "arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"

func TestDefinitions_are_those_of_the_specification(t *testing.T) {
	versions, err := readChain(migrations.DynamoDB, nil)
	if err != nil || len(versions) != 3 {
		t.Fatalf("got %d versions, %v", len(versions), err)
	}
	got := make(map[string]string)
	for _, d := range versions[2].tables {
		text := keys(d.KeySchema, d.AttributeDefinitions) + "; " + string(d.BillingMode)
		if d.TimeToLiveSpecification != nil {
			text += "; expires by " + *d.TimeToLiveSpecification.AttributeName
		}
		for _, i := range d.GlobalSecondaryIndexes {
			text += "; index " + *i.IndexName + " " + keys(i.KeySchema, d.AttributeDefinitions) +
				" " + string(i.Projection.ProjectionType)
		}
		if len(d.LocalSecondaryIndexes) > 0 ||
			len(d.AttributeDefinitions) != len(d.KeySchema)+len(d.GlobalSecondaryIndexes) {
			t.Errorf("%s has more than its keys", *d.TableName)
		}
		got[*d.TableName] = text
	}
	want := map[string]string{
		"chat_counters": "chat_id S; PAY_PER_REQUEST; " +
			"index outbox outbox_shard S, chat_id S KEYS_ONLY",
		"messages":           "chat_id S, sequence N; PAY_PER_REQUEST",
		"idempotency_keys":   "id S; PAY_PER_REQUEST; expires by expires_at",
		"chat_memberships":   "chat_id S, user_id S; PAY_PER_REQUEST",
		"delivery_state":     "user_id S, chat_id S; PAY_PER_REQUEST",
		"pending_deliveries": "receiver_id S, chat_id S; PAY_PER_REQUEST",
		"outlet_backlogs":    "outlet_shard S, chat_id S; PAY_PER_REQUEST",
		"documents":          "kind S, name S; PAY_PER_REQUEST",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// asDefined returns a table as AWS describes it when every step is done.
func asDefined(d table) state {
	is := state{
		table: &types.TableDescription{
			TableName:                 d.TableName,
			TableStatus:               types.TableStatusActive,
			KeySchema:                 d.KeySchema,
			AttributeDefinitions:      d.AttributeDefinitions,
			BillingModeSummary:        &types.BillingModeSummary{BillingMode: d.BillingMode},
			DeletionProtectionEnabled: d.DeletionProtectionEnabled,
		},
		expiry:   &types.TimeToLiveDescription{TimeToLiveStatus: types.TimeToLiveStatusDisabled},
		recovery: types.PointInTimeRecoveryStatusEnabled,
	}
	for _, i := range d.GlobalSecondaryIndexes {
		is.table.GlobalSecondaryIndexes = append(is.table.GlobalSecondaryIndexes,
			types.GlobalSecondaryIndexDescription{
				IndexName: i.IndexName, KeySchema: i.KeySchema,
				IndexStatus: types.IndexStatusActive,
			})
	}
	if d.SSESpecification != nil {
		is.table.SSEDescription = &types.SSEDescription{
			Status:          types.SSEStatusEnabled,
			KMSMasterKeyArn: d.SSESpecification.KMSMasterKeyId,
		}
	}
	if d.TimeToLiveSpecification != nil {
		is.expiry = &types.TimeToLiveDescription{
			TimeToLiveStatus: types.TimeToLiveStatusEnabled,
			AttributeName:    d.TimeToLiveSpecification.AttributeName,
		}
	}
	return is
}

func TestNext_step(t *testing.T) {
	const refused = step(-1)
	for _, tc := range []struct {
		name   string
		table  string
		change func(*state)
		want   step
		words  string // in the Conflict
	}{
		{"as defined", "idempotency_keys", func(*state) {}, done, ""},
		{"no table", "messages", func(is *state) { is.table = nil }, create, ""},
		{
			"being made",
			"messages", func(is *state) { is.table.TableStatus = types.TableStatusCreating }, wait,
			"",
		},
		{
			"being changed",
			"messages", func(is *state) { is.table.TableStatus = types.TableStatusUpdating }, wait,
			"",
		},
		{
			"being deleted",
			"messages", func(is *state) { is.table.TableStatus = types.TableStatusDeleting }, wait,
			"",
		},
		{
			"its key is gone",
			"messages",
			func(is *state) {
				is.table.TableStatus = types.TableStatusInaccessibleEncryptionCredentials
			},
			refused, "INACCESSIBLE_ENCRYPTION_CREDENTIALS",
		},
		{"another range key", "messages", func(is *state) {
			is.table.KeySchema = []types.KeySchemaElement{
				is.table.KeySchema[0],
				{AttributeName: aws.String("user_id"), KeyType: types.KeyTypeRange},
			}
		}, refused, "p-messages has the key chat_id S, user_id, and the definition says chat_id " +
			"S, sequence N"},
		{"another type", "messages", func(is *state) {
			is.table.AttributeDefinitions = []types.AttributeDefinition{
				{AttributeName: aws.String("chat_id"), AttributeType: "S"},
				{AttributeName: aws.String("sequence"), AttributeType: "S"},
			}
		}, refused, "sequence S, and the definition says chat_id S, sequence N"},
		{"an index", "messages", func(is *state) {
			sender := types.AttributeDefinition{
				AttributeName: aws.String("sender_id"), AttributeType: "S",
			}
			is.table.AttributeDefinitions = slices.Insert(is.table.AttributeDefinitions, 0, sender)
		}, done, ""},
		{
			"provisioned",
			"messages", func(is *state) { is.table.BillingModeSummary = nil }, refused,
			"billed as PROVISIONED, and the definition says PAY_PER_REQUEST",
		},
		{
			"not protected",
			"messages", func(is *state) { is.table.DeletionProtectionEnabled = nil }, protect, "",
		},
		{"no key", "messages", func(is *state) { is.table.SSEDescription = nil }, encrypt, ""},
		{
			"another key",
			"messages",
			func(is *state) { is.table.SSEDescription.KMSMasterKeyArn = aws.String("arn:other") },
			encrypt, "",
		},
		{
			"getting a key",
			"messages",
			func(is *state) { is.table.SSEDescription.Status = types.SSEStatusUpdating }, wait, "",
		},
		{"an index as defined", "chat_counters", func(*state) {}, done, ""},
		{
			"no index",
			"chat_counters", func(is *state) { is.table.GlobalSecondaryIndexes = nil }, addIndex,
			"",
		},
		{"an index being made", "chat_counters", func(is *state) {
			is.table.GlobalSecondaryIndexes[0].IndexStatus = types.IndexStatusCreating
		}, wait, ""},
		{"an index being deleted", "chat_counters", func(is *state) {
			is.table.GlobalSecondaryIndexes[0].IndexStatus = types.IndexStatusDeleting
		}, wait, ""},
		{"an index with another key", "chat_counters", func(is *state) {
			is.table.GlobalSecondaryIndexes[0].KeySchema = is.table.KeySchema
		}, refused, "the index outbox of the table p-chat_counters has the key chat_id S, and " +
			"the definition says outbox_shard S, chat_id S"},
		{
			"nobody asked about expiry",
			"messages", func(is *state) { is.expiry = nil }, askExpiry, "",
		},
		{
			"no expiry",
			"idempotency_keys",
			func(is *state) { is.expiry.TimeToLiveStatus = types.TimeToLiveStatusDisabled }, expire,
			"",
		},
		{
			"expiry being turned on",
			"idempotency_keys",
			func(is *state) { is.expiry.TimeToLiveStatus = types.TimeToLiveStatusEnabling }, done,
			"",
		},
		{
			"expiry being turned off",
			"idempotency_keys",
			func(is *state) { is.expiry.TimeToLiveStatus = types.TimeToLiveStatusDisabling },
			refused, "is just being turned off",
		},
		{
			"another expiry",
			"idempotency_keys", func(is *state) { is.expiry.AttributeName = aws.String("ttl") },
			refused, "is the attribute ttl, and the definition says expires_at",
		},
		{"messages that expire", "messages", func(is *state) {
			is.expiry = &types.TimeToLiveDescription{
				TimeToLiveStatus: types.TimeToLiveStatusEnabling,
				AttributeName:    aws.String("created_at"),
			}
		}, refused, "p-messages deletes items by their time to live (created_at)"},
		{
			"nobody asked about recovery",
			"messages", func(is *state) { is.recovery = "" }, askRecovery, "",
		},
		{
			"not recoverable",
			"messages", func(is *state) { is.recovery = types.PointInTimeRecoveryStatusDisabled },
			backUp, "",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := definition(t, tc.table, "dynamodb://eu-central-1/p-?kms_key="+key)
			is := asDefined(d)
			tc.change(&is)
			got, err := d.next(is, true)
			if tc.want == refused {
				if tidemark.CodeOf(err) != tidemark.Conflict ||
					!strings.Contains(err.Error(), tc.words) {
					t.Errorf("got %v, want a Conflict with %q", err, tc.words)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("got step %d, %v, want %d", got, err, tc.want)
			}
		})
	}
}

// TestNext_turns_off_what_the_url_says: but a key that the URL does not name stays.
func TestNext_turns_off_what_the_url_says(t *testing.T) {
	is := asDefined(definition(t, "messages", "dynamodb://eu-central-1/p-?kms_key="+key))
	d := definition(t, "messages",
		"dynamodb://eu-central-1/p-?deletion_protection=off&point_in_time_recovery=off")
	if got, err := d.next(is, false); got != protect || err != nil {
		t.Errorf("protected: got step %d, %v, want %d", got, err, protect)
	}
	is.table.DeletionProtectionEnabled = aws.Bool(false)
	if got, err := d.next(is, false); got != backUp || err != nil {
		t.Errorf("recoverable: got step %d, %v, want %d", got, err, backUp)
	}
	is.recovery = types.PointInTimeRecoveryStatusDisabled
	if got, err := d.next(is, false); got != done || err != nil {
		t.Errorf("got step %d, %v, want %d: the key stays", got, err, done)
	}
}

func definition(t *testing.T, name, url string) table {
	t.Helper()
	to, err := endpoint.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	versions, err := readChain(migrations.DynamoDB, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range versions[len(versions)-1].tables {
		if *d.TableName == name {
			return d.at(to)
		}
	}
	t.Fatalf("there is no table %s", name)
	return table{}
}
