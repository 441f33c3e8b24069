package call

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// one is an operation of the SDK's client.
type one[I, O any] func(context.Context, I, ...func(*dynamodb.Options)) (O, error)

// api is the operations of the SDK's client that are called. They stand here one by one, since a field of the client's type would keep all of its sixty
// operations in the program: what reflection could reach from a store is linked.
type api struct {
	getItem            one[*dynamodb.GetItemInput, *dynamodb.GetItemOutput]
	batchGetItem       one[*dynamodb.BatchGetItemInput, *dynamodb.BatchGetItemOutput]
	query              one[*dynamodb.QueryInput, *dynamodb.QueryOutput]
	updateItem         one[*dynamodb.UpdateItemInput, *dynamodb.UpdateItemOutput]
	putItem            one[*dynamodb.PutItemInput, *dynamodb.PutItemOutput]
	batchWriteItem     one[*dynamodb.BatchWriteItemInput, *dynamodb.BatchWriteItemOutput]
	transactWriteItems one[*dynamodb.TransactWriteItemsInput, *dynamodb.TransactWriteItemsOutput]
}

func callsOf(client *dynamodb.Client) api {
	return api{
		getItem: client.GetItem, batchGetItem: client.BatchGetItem, query: client.Query, updateItem: client.UpdateItem, putItem: client.PutItem,
		batchWriteItem: client.BatchWriteItem, transactWriteItems: client.TransactWriteItems,
	}
}
