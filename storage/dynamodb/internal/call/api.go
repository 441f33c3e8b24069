package call

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// one is an operation of the SDK's client.
type one[I, O any] func(context.Context, I, ...func(*dynamodb.Options)) (O, error)

// api has the operations of the SDK's client that this package calls. A field of the client's type
// would link all of its sixty operations into the program, because reflection could reach them.
type api struct {
	getItem            one[*dynamodb.GetItemInput, *dynamodb.GetItemOutput]
	batchGetItem       one[*dynamodb.BatchGetItemInput, *dynamodb.BatchGetItemOutput]
	query              one[*dynamodb.QueryInput, *dynamodb.QueryOutput]
	updateItem         one[*dynamodb.UpdateItemInput, *dynamodb.UpdateItemOutput]
	scan               one[*dynamodb.ScanInput, *dynamodb.ScanOutput]
	putItem            one[*dynamodb.PutItemInput, *dynamodb.PutItemOutput]
	batchWriteItem     one[*dynamodb.BatchWriteItemInput, *dynamodb.BatchWriteItemOutput]
	transactWriteItems one[*dynamodb.TransactWriteItemsInput, *dynamodb.TransactWriteItemsOutput]
}

func callsOf(client *dynamodb.Client) api {
	return api{
		getItem:            client.GetItem,
		batchGetItem:       client.BatchGetItem,
		query:              client.Query,
		updateItem:         client.UpdateItem,
		scan:               client.Scan,
		putItem:            client.PutItem,
		batchWriteItem:     client.BatchWriteItem,
		transactWriteItems: client.TransactWriteItems,
	}
}
