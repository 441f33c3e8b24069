package dynamo

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// The namespaces of the errors: DynamoDB's own, and those of the service's front end.
const (
	own   = "com.amazonaws.dynamodb.v20120810#"
	front = "com.amazon.coral.availability#"
)

// refusal returns an error as DynamoDB words it.
func refusal(status int, kind, message string, more map[string]any) *answer {
	fields := map[string]any{"__type": kind, "message": message}
	maps.Copy(fields, more)
	return &answer{
		status: status,
		body:   encode(fields),
		header: http.Header{
			"Content-Type": {"application/x-amz-json-1.0"}, "X-Amzn-Requestid": {"FAULT"},
		},
	}
}

// refused returns a fault that answers with an error of the service. If performed is set, the call
// is made first.
func refused(name string, performed bool, say func(*Network, *Call) *answer) Fault {
	return Fault{Name: name, Percent: 20, do: func(
		n *Network, c *Call,
	) (*http.Response, bool, error) {
		if performed {
			if _, err := n.perform(c.request.Context(), c.body, c); err != nil {
				return nil, false, err
			}
		}
		return say(n, c).response(c.request), true, nil
	}}
}

// Throttled refuses the call with one of DynamoDB's throttling errors.
func Throttled() Fault {
	return refused("throttled", false, func(n *Network, c *Call) *answer {
		kinds := []string{
			own + "ProvisionedThroughputExceededException", own + "ThrottlingException",
			own + "RequestLimitExceeded", front + "ThrottlingException",
		}
		return refusal(http.StatusBadRequest, kinds[n.below(len(kinds))],
			"The level of configured provisioned throughput for the table was exceeded.", nil)
	})
}

// TransactionThrottled cancels a transaction because one of its items is throttled.
func TransactionThrottled() Fault {
	return cancelled("transaction cancelled: throttled", "ThrottlingError",
		"Throughput exceeds the current capacity for one or more global secondary indexes.",
		"ProvisionedThroughputExceeded")
}

// TransactionConflict cancels a transaction because another one writes one of its items.
func TransactionConflict() Fault {
	return cancelled("transaction cancelled: conflict", "TransactionConflict",
		"Transaction is ongoing for the item")
}

func cancelled(name, code, message string, others ...string) Fault {
	codes := append([]string{code}, others...)
	return refused(name, false, func(n *Network, c *Call) *answer {
		reasons := make([]map[string]any, c.actions())
		words := make([]string, len(reasons))
		which, code := n.below(len(reasons)), codes[n.below(len(codes))]
		for i := range reasons {
			reasons[i], words[i] = map[string]any{"Code": "None"}, "None"
		}
		reasons[which], words[which] = map[string]any{"Code": code, "Message": message}, code
		return refusal(http.StatusBadRequest, own+"TransactionCanceledException",
			fmt.Sprintf("Transaction cancelled, please refer cancellation reasons for specific "+
				"reasons [%s]", strings.Join(words, ", ")),
			map[string]any{"CancellationReasons": reasons})
	}).For(func(c *Call) bool { return c.Operation == "TransactWriteItems" && c.actions() > 0 })
}

// Conflict refuses a single write because a transaction writes its item.
func Conflict() Fault {
	return refused("single write refused: conflict with a transaction",
		false, func(*Network, *Call) *answer {
			return refusal(http.StatusBadRequest, own+"TransactionConflictException",
				"Transaction is ongoing for the item", nil)
		}).For(func(c *Call) bool {
		return slices.Contains([]string{"PutItem", "UpdateItem", "DeleteItem"}, c.Operation)
	})
}

// InProgress answers that the same transaction is running. It has been performed then.
func InProgress() Fault {
	return refused("transaction in progress", true, func(*Network, *Call) *answer {
		return refusal(http.StatusBadRequest, own+"TransactionInProgressException",
			"The transaction with the given request token is already in progress.", nil)
	}).For(func(c *Call) bool { return c.Operation == "TransactWriteItems" })
}

// InternalError answers 500 before the call is performed.
func InternalError() Fault {
	return refused("500 before the call was performed", false, internal)
}

// InternalErrorAfter performs the call and answers 500.
func InternalErrorAfter() Fault {
	return refused("500 after the call was performed", true, internal)
}

func internal(*Network, *Call) *answer {
	return refusal(http.StatusInternalServerError, own+"InternalServerError",
		"The request processing has failed because of an unknown error, exception or failure.", nil)
}

// Unavailable answers 503, either from the service or from a proxy that does not speak its
// protocol.
func Unavailable() Fault {
	return refused("503", false, func(n *Network, _ *Call) *answer {
		if n.below(2) == 0 {
			return refusal(http.StatusServiceUnavailable, front+"ServiceUnavailableException",
				"Service is unable to handle request.", nil)
		}
		page := refusal([]int{
			http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout,
		}[n.below(3)], "", "", nil)
		page.header.Set("Content-Type", "text/html")
		page.body = []byte("<html><body><h1>503 Service Temporarily Unavailable</h1></body></html>")
		return page
	})
}

// PartialBatch performs some of the items of a batch, at least one, and returns those that it has
// left out.
func PartialBatch() Fault {
	return Fault{
		Name:    "part of a batch left out",
		Percent: 40,
		Of: func(c *Call) bool {
			return c.Operation == "BatchGetItem" || c.Operation == "BatchWriteItem"
		},
		do: func(n *Network, c *Call) (*http.Response, bool, error) {
			asked, left := n.split(c)
			if left == nil {
				given, err := n.perform(c.request.Context(), c.body, c)
				if err != nil {
					return nil, false, err
				}
				return given.response(c.request), false, nil
			}
			fields := maps.Clone(c.fields)
			fields["RequestItems"] = asked
			given, err := n.perform(c.request.Context(), encode(fields), c)
			if err != nil {
				return nil, false, err
			}
			found := given.fields()
			if given.status != http.StatusOK || found == nil {
				return given.response(c.request), false, nil
			}
			rest := map[string]string{
				"BatchGetItem": "UnprocessedKeys", "BatchWriteItem": "UnprocessedItems",
			}[c.Operation]
			found[rest] = left
			return given.with(encode(found)).response(c.request), true, nil
		},
	}
}

// split divides the items of a batch. left is nil if there is only one item.
func (n *Network) split(c *Call) (asked, left map[string]any) {
	asked, left = map[string]any{}, map[string]any{}
	for table, of := range object(c.fields["RequestItems"]) {
		items, writes := of.([]any)
		if !writes {
			items, _ = object(of)["Keys"].([]any)
		}
		kept := 1 + n.below(max(len(items), 1))
		put := func(into map[string]any, some []any) {
			if len(some) == 0 {
				return
			}
			if writes {
				into[table] = some
				return
			}
			keys := maps.Clone(object(of))
			keys["Keys"] = some
			into[table] = keys
		}
		put(asked, items[:min(kept, len(items))])
		put(left, items[min(kept, len(items)):])
	}
	if len(left) == 0 {
		return asked, nil
	}
	return asked, left
}

// ShortPage ends a page of a query early, and returns where the next one begins.
func ShortPage() Fault {
	of := func(c *Call) bool { return c.Operation == "Query" }
	return Fault{Name: "page of a query cut short", Percent: 40, Of: of, do: func(
		n *Network, c *Call,
	) (*http.Response, bool, error) {
		fields := maps.Clone(c.fields)
		limit := 1 + n.below(5)
		if asked, ok := c.fields["Limit"].(json.Number); ok {
			if most, err := asked.Int64(); err == nil {
				limit = min(limit, int(most))
			}
		}
		fields["Limit"] = limit
		given, err := n.perform(c.request.Context(), encode(fields), c)
		if err != nil {
			return nil, false, err
		}
		return given.response(c.request), given.fields()["LastEvaluatedKey"] != nil, nil
	}}
}

// Stale answers an eventual read with an outdated state, up to a second old.
func Stale() Fault {
	of := func(c *Call) bool { return !c.Writes && !c.Strong }
	return Fault{Name: "older answer to an eventual read", Percent: 80, Of: of, do: func(
		n *Network, c *Call,
	) (*http.Response, bool, error) {
		given, err := n.perform(c.request.Context(), c.body, c)
		if err != nil {
			return nil, false, err
		}
		if older := n.older(string(c.body), given); older != nil {
			return older.response(c.request), true, nil
		}
		return given.response(c.request), false, nil
	}}
}

// Hole leaves an item out of the answer to a query of a table, and shows a later one. An eventual
// read may do so, a strong one may not. A strong read shows a hole if an item is lost, or if an
// assumption about strong reads is wrong.
func Hole(table string, strong bool) Fault {
	name := "n+1 without n in an eventual read"
	if strong {
		name = "n+1 without n in a strong read"
	}
	of := func(c *Call) bool { return c.On("Query", table) && c.Strong == strong }
	return Fault{Name: name, Percent: 30, Of: of, do: func(
		n *Network, c *Call,
	) (*http.Response, bool, error) {
		given, err := n.perform(c.request.Context(), c.body, c)
		if err != nil {
			return nil, false, err
		}
		found := given.fields()
		items, _ := found["Items"].([]any)
		if len(items) < 2 {
			return given.response(c.request), false, nil
		}
		missing := n.below(len(items) - 1)
		if c.fields["ScanIndexForward"] == false {
			missing++
		}
		found["Items"] = slices.Delete(items, missing, missing+1)
		found["Count"] = len(items) - 1
		return given.with(encode(found)).response(c.request), true, nil
	}}
}
