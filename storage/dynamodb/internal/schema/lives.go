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
// the tables are others than before. Several processes may call it at once.
func (s *Tables) Lives(ctx context.Context) ([]lives.Life, error) {
	identity, err := s.identity(ctx)
	if err != nil {
		return nil, s.explain(err)
	}
	for {
		all, err := s.readLives(ctx)
		if err != nil {
			return nil, s.explain(err)
		}
		//rule:restore_is_noticed.common-tables-are-the-same
		if n := len(all); n > 0 && agree(all[n-1].Identity, identity) {
			identity = all[n-1].Identity
		}
		life, begins := lives.Next(all, identity)
		if !begins {
			return all, nil
		}
		all = append(all, life)
		var refused *types.ConditionalCheckFailedException
		switch err := s.writeLives(ctx, all); {
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

// agree reports whether two identities have tables in common, and the ids of all of these are the
// same. Programs that need other versions of the schema also have other tables.
func agree(stored, found string) bool {
	ids := make(map[string]string)
	for part := range strings.FieldsSeq(stored) {
		name, id, _ := strings.Cut(part, "=")
		ids[name] = id
	}
	common := 0
	for part := range strings.FieldsSeq(found) {
		name, id, _ := strings.Cut(part, "=")
		switch was, known := ids[name]; {
		case known && was != id:
			return false
		case known:
			common++
		}
	}
	return common > 0
}

func livesItem() map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"chat_id": &types.AttributeValueMemberS{Value: livesKey}}
}

func (s *Tables) readLives(ctx context.Context) (all []lives.Life, err error) {
	out, err := ask(ctx, s.api.GetItem, &dynamodb.GetItemInput{
		TableName:      aws.String(s.to.Table(Counters)),
		Key:            livesItem(),
		ConsistentRead: aws.Bool(true),
	})
	if err != nil || out.Item == nil {
		return nil, err
	}
	text, _ := out.Item["lives"].(*types.AttributeValueMemberS)
	if text == nil || json.Unmarshal([]byte(text.Value), &all) != nil {
		return nil, tidemark.Errorf(tidemark.Conflict, "the item %s of the table %s is damaged; "+
			"restore a backup", livesKey, s.to.Table(Counters))
	}
	return all, nil
}

// writeLives stores the lives, unless another process has stored as many.
func (s *Tables) writeLives(ctx context.Context, all []lives.Life) error {
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	it := livesItem()
	it["lives"] = &types.AttributeValueMemberS{Value: string(text)}
	it["life"] = number(uint(all[len(all)-1].Number))
	_, err = ask(ctx, s.api.PutItem, &dynamodb.PutItemInput{
		TableName:                 aws.String(s.to.Table(Counters)),
		Item:                      it,
		ConditionExpression:       aws.String("attribute_not_exists(chat_id) OR life < :life"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":life": it["life"]},
	})
	return err
}
