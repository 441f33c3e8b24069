package dynamodb

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tidemark-im/tidemark/storage/storagetest"
)

// TestErase_erased_nowhere_in_all_tables: no item has anything of the user.
func TestErase_erased_nowhere_in_all_tables(t *testing.T) {
	url := newTables(t)
	storagetest.Erased(t, openTest(t, url))
	api, name := raw(t, url)
	prefix := *name("")
	list, err := api.ListTables(t.Context(),
		&dynamodb.ListTablesInput{ExclusiveStartTableName: &prefix})
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for _, table := range list.TableNames {
		if !strings.HasPrefix(table, prefix) {
			continue
		}
		tables++
		for _, item := range itemsOf(t, api, table) {
			if strings.Contains(item, storagetest.Canary) {
				t.Errorf("the table %s has %s", table, item)
			}
		}
	}
	if tables < 8 {
		t.Errorf("there are %d tables, want at least 8", tables)
	}
}
