package dynamodb

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark/storage/internal/lives"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	service "github.com/tidemark-im/tidemark/test/services/dynamodb"
)

// frozen has the items of storagetest.WriteFrozen in the tables of version 1, by table.
const frozen = "testdata/v1.json"

// neverExpires is the expiry of the keys: a time in the year 2100, in seconds since 1970.
const neverExpires = "4102444800"

// TestFrozen_v1_is_upgraded: this program upgrades data of version 1, and reads and writes them.
// `make frozen` writes the data anew.
func TestFrozen_v1_is_upgraded(t *testing.T) {
	url := service.Shared(t).Store(t)
	found, err := Status(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if storagetest.Rewrite(t, found.Needed) {
		writeFrozen(t)
	}
	loadFrozen(t, url)
	storagetest.RunFrozen(t, openTest(t, url), storagetest.FrozenLives)
}

// loadFrozen makes the tables of version 1 with the frozen data, and upgrades them.
func loadFrozen(t *testing.T, url string) {
	t.Helper()
	text, err := os.ReadFile(frozen)
	if err != nil {
		t.Fatal(err)
	}
	var tables map[string][]map[string]plainValue
	if err := json.Unmarshal(text, &tables); err != nil {
		t.Fatal(err)
	}
	if err := tablesOfFiles(t, url, upTo(t, 1), nil).Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	api, name := raw(t, url)
	for table, items := range tables {
		for _, item := range items {
			put := &dynamodb.PutItemInput{
				TableName: name(table), Item: make(map[string]types.AttributeValue, len(item)),
			}
			for attribute, value := range item {
				put.Item[attribute] = value.AttributeValue
			}
			if _, err := api.PutItem(t.Context(), put); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := Migrate(t.Context(), url, Up); err != nil {
		t.Fatal(err)
	}
}

func writeFrozen(t *testing.T) {
	t.Helper()
	s, ids := storagetest.WriteFrozen(t, frozenStore(t), restored)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	api, name := raw(t, s.(durable).url)
	prefix := *name("")
	list, err := api.ListTables(t.Context(),
		&dynamodb.ListTablesInput{ExclusiveStartTableName: &prefix})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("{")
	for _, table := range list.TableNames {
		table, ours := strings.CutPrefix(table, prefix)
		if !ours {
			continue
		}
		items := itemsOf(t, api, *name(table))
		fmt.Fprintf(&text, "\n%q: [\n%s\n],", table, strings.Join(items, ",\n"))
	}
	all := strings.TrimSuffix(text.String(), ",") + "\n}\n"
	for i, id := range ids {
		all = strings.ReplaceAll(all, string(id), string(storagetest.FrozenLives[i]))
	}
	if err := os.WriteFile(frozen, []byte(numbered(all)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// itemsOf returns the items of a table as JSON, in the order of the texts.
func itemsOf(t *testing.T, api *dynamodb.Client, table string) (items []string) {
	t.Helper()
	pages := dynamodb.NewScanPaginator(api, &dynamodb.ScanInput{
		TableName: &table, ConsistentRead: aws.Bool(true),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			values := make(map[string]plainValue, len(item))
			for attribute, value := range item {
				values[attribute] = plainValue{steady(t, attribute, value)}
			}
			text, err := json.Marshal(values)
			if err != nil {
				t.Fatal(err)
			}
			items = append(items, string(text))
		}
	}
	masked := func(item string) string { return changeToken.ReplaceAllString(item, "") }
	slices.SortFunc(items,
		func(a, b string) int { return strings.Compare(masked(a), masked(b)) })
	return items
}

// changeToken is a random text that names a change of members.
var changeToken = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

// numbered replaces the tokens by their numbers in the order of the text.
func numbered(text string) string {
	numbers := make(map[string]string)
	return changeToken.ReplaceAllStringFunc(text, func(found string) string {
		if numbers[found] == "" {
			numbers[found] = fmt.Sprintf("CHANGE%020d", len(numbers))
		}
		return numbers[found]
	})
}

// steady returns the value of an attribute, and replaces the parts that differ from run to run.
func steady(t *testing.T, attribute string, value types.AttributeValue) types.AttributeValue {
	t.Helper()
	switch attribute {
	case "expires_at":
		return &types.AttributeValueMemberN{Value: neverExpires}
	case "lives":
		var all []lives.Life
		err := json.Unmarshal([]byte(value.(*types.AttributeValueMemberS).Value), &all)
		for i := range all {
			all[i].Identity = "messages=another"
		}
		text, e := json.Marshal(all)
		if err != nil || e != nil {
			t.Fatal(err, e)
		}
		return &types.AttributeValueMemberS{Value: string(text)}
	}
	return value
}

// plainValue is a value in the JSON of DynamoDB, such as {"S": "text"}.
type plainValue struct{ types.AttributeValue }

func (p plainValue) MarshalJSON() ([]byte, error) {
	switch v := p.AttributeValue.(type) {
	case *types.AttributeValueMemberS:
		return json.Marshal(map[string]string{"S": v.Value})
	case *types.AttributeValueMemberN:
		return json.Marshal(map[string]string{"N": v.Value})
	case *types.AttributeValueMemberBOOL:
		return json.Marshal(map[string]bool{"BOOL": v.Value})
	case *types.AttributeValueMemberSS:
		slices.Sort(v.Value)
		return json.Marshal(map[string][]string{"SS": v.Value})
	case *types.AttributeValueMemberL:
		list := make([]plainValue, len(v.Value))
		for i := range list {
			list[i] = plainValue{v.Value[i]}
		}
		return json.Marshal(map[string][]plainValue{"L": list})
	case *types.AttributeValueMemberM:
		fields := make(map[string]plainValue, len(v.Value))
		for name, value := range v.Value {
			fields[name] = plainValue{value}
		}
		return json.Marshal(map[string]map[string]plainValue{"M": fields})
	}
	return nil, fmt.Errorf("a value of the type %T cannot be frozen yet", p.AttributeValue)
}

func (p *plainValue) UnmarshalJSON(text []byte) error {
	var value struct {
		S, N *string
		BOOL *bool
		SS   []string
		L    []plainValue
		M    map[string]plainValue
	}
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	switch {
	case value.S != nil:
		p.AttributeValue = &types.AttributeValueMemberS{Value: *value.S}
	case value.N != nil:
		p.AttributeValue = &types.AttributeValueMemberN{Value: *value.N}
	case value.BOOL != nil:
		p.AttributeValue = &types.AttributeValueMemberBOOL{Value: *value.BOOL}
	case value.SS != nil:
		p.AttributeValue = &types.AttributeValueMemberSS{Value: value.SS}
	case value.L != nil:
		list := &types.AttributeValueMemberL{}
		for _, v := range value.L {
			list.Value = append(list.Value, v.AttributeValue)
		}
		p.AttributeValue = list
	case value.M != nil:
		fields := &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{}}
		for name, v := range value.M {
			fields.Value[name] = v.AttributeValue
		}
		p.AttributeValue = fields
	default:
		return fmt.Errorf("there is no value in %s", text)
	}
	return nil
}

// frozenStore opens a store on empty tables.
func frozenStore(t *testing.T) durable {
	t.Helper()
	url := newTables(t)
	return durable{openTest(t, url), url}
}
