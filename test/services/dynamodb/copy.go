package dynamodb

import (
	"net/url"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Copy puts the items of one store's tables into the empty tables of another, as a restored backup
// has them.
func (s *Server) Copy(t testing.TB, from, to string) {
	t.Helper()
	client := s.Client()
	source, target := prefixIn(t, from), prefixIn(t, to)
	tables, err := client.ListTables(t.Context(), &dynamodb.ListTablesInput{
		ExclusiveStartTableName: aws.String(source),
	})
	if err != nil {
		t.Fatal(err)
	}
	copied := 0
	for _, table := range tables.TableNames {
		name, of := strings.CutPrefix(table, source)
		if !of {
			continue
		}
		copied++
		pages := dynamodb.NewScanPaginator(client, &dynamodb.ScanInput{
			TableName: aws.String(table), ConsistentRead: aws.Bool(true),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range page.Items {
				_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{
					TableName: aws.String(target + name), Item: item,
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if copied == 0 {
		t.Fatalf("there are no tables of %s", from)
	}
}

// prefixIn returns the prefix of the tables of a store.
func prefixIn(t testing.TB, store string) string {
	t.Helper()
	u, err := url.Parse(store)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(u.Path, "/")
}
