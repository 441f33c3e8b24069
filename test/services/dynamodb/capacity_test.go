package dynamodb

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

type item = map[string]types.AttributeValue

// TestShared_bills_as_AWS_says: the emulator counts request units as AWS's manual says ("DynamoDB
// read and write operations"). So a cost that was measured on the emulator is valid for DynamoDB.
//
// The size of an item is that of its names and values. A write takes a unit for each started KB, of
// the larger item if one replaces another, and twice as much in a transaction. A read takes a unit
// for each 4 KB started, half if it is eventual. A batch counts each item by itself, a query their
// sum. A missing item counts as one.
func TestShared_bills_as_AWS_says(t *testing.T) {
	table, client := aws.String("capacity"), Shared(t).Client()
	total := types.ReturnConsumedCapacityTotal
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:   table,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("p"), AttributeType: "S"},
			{AttributeName: aws.String("q"), AttributeType: "S"},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("p"), KeyType: "HASH"},
			{AttributeName: aws.String("q"), KeyType: "RANGE"},
		},
	})
	must(t, err)
	must(t,
		dynamodb.NewTableExistsWaiter(client).Wait(t.Context(),
			&dynamodb.DescribeTableInput{TableName: table}, time.Minute))
	t.Cleanup(func() {
		_, err := client.DeleteTable(context.Background(),
			&dynamodb.DeleteTableInput{TableName: table})
		must(t, err)
	})
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	named := func(q string) item { return item{"p": text("p"), "q": text(q)} }
	// of returns an item of so many bytes in all.
	of := func(q string, size int) item {
		it := named(q)
		it["x"] = text(strings.Repeat("x", size-len("p"+"p"+"q"+"x")-len(q)))
		return it
	}
	one := func(c *types.ConsumedCapacity) float64 {
		t.Helper()
		if c == nil {
			t.Fatal("nothing is said of what was consumed")
		}
		return aws.ToFloat64(c.CapacityUnits)
	}
	several := func(c []types.ConsumedCapacity) float64 {
		t.Helper()
		if len(c) != 1 {
			t.Fatalf("consumed: %v", c)
		}
		return one(&c[0])
	}
	put := func(it item) float64 {
		out, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{
			TableName:              table,
			Item:                   it,
			ReturnConsumedCapacity: total,
		})
		must(t, err)
		return one(out.ConsumedCapacity)
	}
	update := func(q, change string) float64 {
		out, err := client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName:                 table,
			Key:                       named(q),
			UpdateExpression:          &change,
			ExpressionAttributeValues: item{":v": text("v")},
			ReturnConsumedCapacity:    total,
		})
		must(t, err)
		return one(out.ConsumedCapacity)
	}
	remove := func(q string) float64 {
		out, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
			TableName:              table,
			Key:                    named(q),
			ReturnConsumedCapacity: total,
		})
		must(t, err)
		return one(out.ConsumedCapacity)
	}
	get := func(q string, strong bool) float64 {
		out, err := client.GetItem(t.Context(), &dynamodb.GetItemInput{
			TableName:              table,
			Key:                    named(q),
			ConsistentRead:         &strong,
			ReturnConsumedCapacity: total,
		})
		must(t, err)
		return one(out.ConsumedCapacity)
	}
	batch := func(strong bool, qs ...string) float64 {
		wanted := types.KeysAndAttributes{ConsistentRead: &strong}
		for _, q := range qs {
			wanted.Keys = append(wanted.Keys, named(q))
		}
		out, err := client.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{
			RequestItems:           map[string]types.KeysAndAttributes{*table: wanted},
			ReturnConsumedCapacity: total,
		})
		must(t, err)
		return several(out.ConsumedCapacity)
	}
	query := func(from string, strong bool) float64 {
		out,
			err := client.Query(t.Context(),
			&dynamodb.QueryInput{TableName: table,
				KeyConditionExpression:    aws.String("p = :p AND q >= :q"),
				ProjectionExpression:      aws.String("q"),
				ExpressionAttributeValues: item{":p": text("p"), ":q": text(from)},
				ConsistentRead:            &strong,
				ReturnConsumedCapacity:    total,
			})
		must(t, err)
		return one(out.ConsumedCapacity)
	}
	transact := func(items ...types.TransactWriteItem) float64 {
		out, err := client.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{
			TransactItems:          items,
			ReturnConsumedCapacity: total,
		})
		must(t, err)
		return several(out.ConsumedCapacity)
	}
	check := types.TransactWriteItem{
		ConditionCheck: &types.ConditionCheck{
			TableName:           table,
			Key:                 named("a"),
			ConditionExpression: aws.String("attribute_exists(p)"),
		},
	}
	txPut := func(it item) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{TableName: table, Item: it}}
	}
	txUpdate := types.TransactWriteItem{
		Update: &types.Update{
			TableName:                 table,
			Key:                       named("b"),
			UpdateExpression:          aws.String("SET y = :v"),
			ExpressionAttributeValues: item{":v": text("v")},
		},
	}
	txDelete := types.TransactWriteItem{Delete: &types.Delete{TableName: table, Key: named("t1")}}
	// The order matters: each case finds what those before it left.
	for i, tt := range []struct {
		what      string
		got, want float64
	}{
		{"a put of 1 KB", put(of("a", 1024)), 1},
		{"… of a byte more", put(of("b", 1025)), 2},
		{"… of 5 KB", put(of("c", 5*1024)), 5},
		{"… of little in place of 5 KB", put(of("c", 100)), 5},
		{"… of 4 KB and a byte", put(of("d", 4*1024+1)), 5},
		{"an update of a small item", update("c", "SET y = :v"), 1},
		{"… of an item of 4 KB", update("d", "SET y = :v"), 5},
		{"… which makes the item", update("e", "SET y = :v"), 1},
		{"a delete of 5 KB", remove("d"), 5},
		{"… of nothing", remove("d"), 1},
		{"put again", put(of("d", 4*1024+1)), 5},
		{"a strong get", get("a", true), 1},
		{"an eventual get", get("a", false), 0.5},
		{"a strong get of more than 4 KB", get("d", true), 2},
		{"a strong get of nothing", get("none", true), 1},
		{"an eventual get of nothing", get("none", false), 0.5},
		{"a strong batch of 1, 4 and 0 KB", batch(true, "a", "d", "none"), 4},
		{"an eventual one", batch(false, "a", "d", "none"), 2},
		{"a strong query of 1 + 1 + 0.1 + 4 KB", query("a", true), 2},
		{"an eventual one", query("a", false), 1},
		{"a strong query of nothing", query("x", true), 1},
		{"an eventual one", query("x", false), 0.5},
		{"a transaction of two puts", transact(txPut(of("t1", 1024)), txPut(of("t2", 1025))), 6},
		{"… of a check and an update of 1 KB and more", transact(check, txUpdate), 6},
		{"… of a delete", transact(txDelete), 2},
	} {
		if tt.got != tt.want {
			t.Errorf("%d: %s costs %v units, AWS says %v", i, tt.what, tt.got, tt.want)
		}
	}
}

// TestShared_bills_an_index_as_AWS_says: a sparse index of keys takes a unit for an entry that
// comes or goes, two for one that moves, and none if its key stays (AWS, "Using Global Secondary
// Indexes: Provisioned throughput considerations"). The emulator does not double that in a
// transaction. AWS does not say what it does.
func TestShared_bills_an_index_as_AWS_says(t *testing.T) {
	table, client := aws.String("capacity-of-index"), Shared(t).Client()
	name := func(s string) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: &s, AttributeType: "S"}
	}
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:            table,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{name("p")},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("p"), KeyType: "HASH"},
		},
	})
	must(t, err)
	t.Cleanup(func() {
		_, err := client.DeleteTable(context.Background(),
			&dynamodb.DeleteTableInput{TableName: table})
		must(t, err)
	})
	_, err = client.UpdateTable(t.Context(), &dynamodb.UpdateTableInput{
		TableName:            table,
		AttributeDefinitions: []types.AttributeDefinition{name("p"), name("i")},
		GlobalSecondaryIndexUpdates: []types.GlobalSecondaryIndexUpdate{{
			Create: &types.CreateGlobalSecondaryIndexAction{
				IndexName: aws.String("index"),
				KeySchema: []types.KeySchemaElement{
					{AttributeName: aws.String("i"), KeyType: "HASH"},
					{AttributeName: aws.String("p"), KeyType: "RANGE"},
				},
				Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
			},
		}},
	})
	must(t, err)
	text := func(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
	update := func(change string, values item) *types.Update {
		return &types.Update{
			TableName: table, Key: item{"p": text("p")}, UpdateExpression: &change,
			ExpressionAttributeValues: values,
		}
	}
	alone := func(u *types.Update) float64 {
		out, err := client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: u.TableName, Key: u.Key, UpdateExpression: u.UpdateExpression,
			ExpressionAttributeValues: u.ExpressionAttributeValues,
			ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
		})
		must(t, err)
		return aws.ToFloat64(out.ConsumedCapacity.CapacityUnits)
	}
	together := func(u *types.Update) float64 {
		out, err := client.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{
			TransactItems:          []types.TransactWriteItem{{Update: u}},
			ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal,
		})
		must(t, err)
		return aws.ToFloat64(out.ConsumedCapacity[0].CapacityUnits)
	}
	const comes = "SET x = :v, i = if_not_exists(i, :i)"
	come := item{":v": text("v"), ":i": text("07")}
	for what, write := range map[string]struct {
		of   func(*types.Update) float64
		base float64
	}{"an update": {alone, 1}, "a transaction": {together, 2}} {
		for i, step := range []struct {
			change string
			values item
			index  float64
		}{
			{"SET x = :v", item{":v": text("v")}, 0},
			{comes, come, 1},
			{comes, come, 0},
			{"SET i = :i", item{":i": text("08")}, 2},
			{"REMOVE i", nil, 1},
		} {
			got := write.of(update(step.change, step.values))
			if want := write.base + step.index; got != want {
				t.Errorf("%s, step %d: %q costs %v units, want %v",
					what, i, step.change, got, want)
			}
		}
	}
}
