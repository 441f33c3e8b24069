package schema

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/internal/lives"
)

// livesKey is the chat_id of the item with the lives of the data in the table Counters: JSON in
// lives, and the number of the last in life.
const livesKey = "|lives"

// Lives returns the lives of the data, of which the last is the present one. It stores a new one if
// the tables are others than before. If a migration has added tables, it stores them with the
// present life, so that a restore of one of them is noticed too. Several processes may call it at
// once.
func (s *Tables) Lives(ctx context.Context) ([]lives.Life, error) {
	found, err := s.identity(ctx)
	if err != nil {
		return nil, s.explain(err)
	}
	for {
		text, all, err := s.readLives(ctx)
		if err != nil {
			return nil, s.explain(err)
		}
		identity, added := found, false
		if n := len(all); n > 0 {
			//rule:restore_is_noticed.common-tables-are-the-same
			if both, agree := merge(all[n-1].Identity, found); agree {
				//rule:restore_is_noticed.tables-of-a-migration
				added = both != all[n-1].Identity
				identity, all[n-1].Identity = both, both
			}
		}
		life, begins := lives.Next(all, identity)
		if begins {
			all = append(all, life)
		} else if !added {
			return all, nil
		}
		var refused *types.ConditionalCheckFailedException
		switch err := s.writeLives(ctx, text, all); {
		case errors.As(err, &refused): // another process was quicker
		case err != nil:
			return nil, s.explain(err)
		}
	}
}

// identity returns the names and ids of the tables, as in "messages=ID …". DynamoDB gives a new id
// to each table that it creates, also to one that is restored.
func (s *Tables) identity(ctx context.Context) (string, error) {
	var mu sync.Mutex
	var ids []string
	err := each(ctx, s.wanted(), func(ctx context.Context, d table) error {
		is, err := s.describe(ctx, d)
		if err != nil || is == nil { // A newer program may have removed it.
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		//rule:restore_is_noticed.identity-of-each-table
		ids = append(ids, *d.TableName+"="+aws.ToString(is.TableId))
		return nil
	})
	slices.Sort(ids)
	return strings.Join(ids, " "), err
}

// merge returns the tables of two identities. It returns false if they have no tables in common, or
// if the ids of one of these differ. Programs that need other versions of the schema also have
// other tables.
func merge(stored, found string) (both string, agree bool) {
	ids := make(map[string]string)
	all := strings.Fields(stored)
	for _, part := range all {
		name, id, _ := strings.Cut(part, "=")
		ids[name] = id
	}
	for part := range strings.FieldsSeq(found) {
		name, id, _ := strings.Cut(part, "=")
		switch was, known := ids[name]; {
		case known && was != id:
			return "", false
		case known:
			agree = true
		default:
			all = append(all, part)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " "), agree
}

// LivesKey returns the key of the item with the lives of the data, in the table Counters.
func LivesKey() map[string]types.AttributeValue { return livesItem() }

func livesItem() map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"chat_id": &types.AttributeValueMemberS{Value: livesKey}}
}

// readLives returns the stored lives, and their text, which is empty if there are none.
func (s *Tables) readLives(ctx context.Context) (text string, all []lives.Life, err error) {
	out, err := ask(ctx, s.api.GetItem, &dynamodb.GetItemInput{
		TableName:      aws.String(s.to.Table(Counters)),
		Key:            livesItem(),
		ConsistentRead: aws.Bool(true),
	})
	if err != nil || out.Item == nil {
		return "", nil, err
	}
	stored, _ := out.Item["lives"].(*types.AttributeValueMemberS)
	if stored == nil || json.Unmarshal([]byte(stored.Value), &all) != nil {
		return "", nil, tidemark.Errorf(tidemark.Conflict,
			"the item %s of the table %s is damaged; restore a backup",
			livesKey, s.to.Table(Counters))
	}
	return stored.Value, all, nil
}

// writeLives stores the lives, unless another process has changed them since their text was read.
func (s *Tables) writeLives(ctx context.Context, read string, all []lives.Life) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	it := livesItem()
	it["lives"] = &types.AttributeValueMemberS{Value: string(text)}
	it["life"] = number(uint(all[len(all)-1].Number))
	put := &dynamodb.PutItemInput{
		TableName:           aws.String(s.to.Table(Counters)),
		Item:                it,
		ConditionExpression: aws.String("attribute_not_exists(chat_id)"),
	}
	if read != "" {
		put.ConditionExpression = aws.String("#lives = :read")
		put.ExpressionAttributeNames = map[string]string{"#lives": "lives"}
		put.ExpressionAttributeValues = map[string]types.AttributeValue{
			":read": &types.AttributeValueMemberS{Value: read},
		}
	}
	_, err = ask(ctx, s.api.PutItem, put)
	return err
}
