package schema

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage/dynamodb/internal/endpoint"
)

// A table is a table's definition: the input of CreateTable and of UpdateTimeToLive.
type table struct {
	dynamodb.CreateTableInput
	TimeToLiveSpecification *types.TimeToLiveSpecification
}

// at returns the definition with the names and the protection of an endpoint.
func (d table) at(to *endpoint.Endpoint) table {
	d.TableName = aws.String(to.Table(*d.TableName))
	d.DeletionProtectionEnabled = aws.Bool(to.DeletionProtection)
	if to.Key != "" {
		d.SSESpecification = &types.SSESpecification{
			Enabled:        aws.Bool(true),
			SSEType:        types.SSETypeKms,
			KMSMasterKeyId: aws.String(to.Key),
		}
	}
	return d
}

// with returns the definition with one more index.
func (d table) with(added index) table {
	d.AttributeDefinitions = slices.Concat(d.AttributeDefinitions, added.AttributeDefinitions)
	d.GlobalSecondaryIndexes = append(slices.Clip(d.GlobalSecondaryIndexes),
		types.GlobalSecondaryIndex{
			IndexName: added.Create.IndexName, KeySchema: added.Create.KeySchema,
			Projection: added.Create.Projection,
		})
	return d
}

// A state is the known state of a table. expiry and recovery are requested one after the other,
// once the parts above them match.
type state struct {
	table    *types.TableDescription // nil: there is none
	expiry   *types.TimeToLiveDescription
	recovery types.PointInTimeRecoveryStatus
}

// A step is the next thing to do with a table.
type step int

const (
	create step = iota
	wait
	protect   // set the protection against deletion
	encrypt   // set the key
	addIndex  // add the first index that is missing
	askExpiry // look at the time to live
	expire    // set the time to live
	askRecovery
	backUp // set point-in-time recovery
	done
)

// next returns the next step that makes a table match its definition. It returns Conflict if no
// step can. Several processes may do this at once, since each step starts with a new description.
func (d table) next(is state, recovery bool) (step, error) {
	if is.table == nil {
		return create, nil
	}
	switch is.table.TableStatus {
	case types.TableStatusActive:
	case types.TableStatusCreating, types.TableStatusUpdating, types.TableStatusDeleting:
		return wait, nil
	default:
		return done, tidemark.Errorf(tidemark.Conflict,
			"the table %s is %s; look at it in the console of AWS", *d.TableName,
			is.table.TableStatus)
	}
	if err := d.compare(is.table); err != nil {
		return done, err
	}
	if billing := billingOf(is.table); billing != d.BillingMode {
		return done, tidemark.Errorf(tidemark.Conflict,
			"the table %s is billed as %s, and the definition says %s; change it, or give "+
				"Tidemark another prefix", *d.TableName, billing, d.BillingMode)
	}
	if aws.ToBool(is.table.DeletionProtectionEnabled) != *d.DeletionProtectionEnabled {
		return protect, nil
	}
	if d.SSESpecification != nil {
		found := is.table.SSEDescription
		switch {
		case found != nil &&
			(found.Status == types.SSEStatusEnabling || found.Status == types.SSEStatusUpdating):
			return wait, nil
		case found == nil ||
			aws.ToString(found.KMSMasterKeyArn) != *d.SSESpecification.KMSMasterKeyId:
			return encrypt, nil
		}
	}
	if step, err := d.nextIndex(is.table); step != done || err != nil {
		return step, err
	}
	if is.expiry == nil {
		return askExpiry, nil
	}
	if step, err := d.nextExpiry(is.expiry); step != done || err != nil {
		return step, err
	}
	switch on := is.recovery == types.PointInTimeRecoveryStatusEnabled; {
	case is.recovery == "":
		return askRecovery, nil
	case on != recovery:
		return backUp, nil
	}
	return done, nil
}

// nextIndex returns addIndex, or wait, until the table has the indexes of the definition. It leaves
// other indexes alone.
func (d table) nextIndex(is *types.TableDescription) (step, error) {
	for _, wanted := range d.GlobalSecondaryIndexes {
		found := indexIn(is, *wanted.IndexName)
		if found == nil {
			return addIndex, nil
		}
		got := keys(found.KeySchema, is.AttributeDefinitions)
		if want := keys(wanted.KeySchema, d.AttributeDefinitions); got != want {
			return done, tidemark.Errorf(tidemark.Conflict,
				"the index %s of the table %s has the key %s, and the definition says %s; delete "+
					"it, and migrate again", *wanted.IndexName, *d.TableName, got, want)
		}
		if found.IndexStatus != types.IndexStatusActive {
			return wait, nil
		}
	}
	return done, nil
}

// indexIn returns the index of a table with a name, nil if there is none.
func indexIn(
	is *types.TableDescription, name string,
) *types.GlobalSecondaryIndexDescription {
	for i := range is.GlobalSecondaryIndexes {
		if aws.ToString(is.GlobalSecondaryIndexes[i].IndexName) == name {
			return &is.GlobalSecondaryIndexes[i]
		}
	}
	return nil
}

func (d table) nextExpiry(is *types.TimeToLiveDescription) (step, error) {
	on := is.TimeToLiveStatus == types.TimeToLiveStatusEnabled ||
		is.TimeToLiveStatus == types.TimeToLiveStatusEnabling
	switch wanted := d.TimeToLiveSpecification; {
	case wanted == nil && on:
		return done, tidemark.Errorf(tidemark.Conflict,
			"the table %s deletes items by their time to live (%s), and the definition has none; "+
				"turn it off", *d.TableName, aws.ToString(is.AttributeName))
	case wanted == nil:
	case on && aws.ToString(is.AttributeName) != *wanted.AttributeName:
		return done, tidemark.Errorf(tidemark.Conflict,
			"the time to live of the table %s is the attribute %s, and the definition says %s; "+
				"turn it off, and migrate again after an hour", *d.TableName,
			aws.ToString(is.AttributeName), *wanted.AttributeName)
	case is.TimeToLiveStatus == types.TimeToLiveStatusDisabling:
		return done, tidemark.Errorf(tidemark.Conflict,
			"the time to live of the table %s is just being turned off, which takes up to an "+
				"hour; migrate again after that", *d.TableName)
	case !on:
		return expire, nil
	}
	return done, nil
}

// compare returns a Conflict unless a table has the keys of the definition.
func (d table) compare(is *types.TableDescription) error {
	got := keys(is.KeySchema, is.AttributeDefinitions)
	if want := keys(d.KeySchema, d.AttributeDefinitions); got != want {
		return tidemark.Errorf(tidemark.Conflict,
			"the table %s has the key %s, and the definition says %s: it is another program's; "+
				"give Tidemark another prefix", *d.TableName, got, want)
	}
	return nil
}

// keys names a key with the types of its attributes, as in "chat_id S, sequence N".
func keys(schema []types.KeySchemaElement, attributes []types.AttributeDefinition) string {
	parts := make([]string, len(schema))
	for i, element := range schema {
		name := aws.ToString(element.AttributeName)
		parts[i] = name
		at := slices.IndexFunc(attributes, func(a types.AttributeDefinition) bool {
			return aws.ToString(a.AttributeName) == name
		})
		if at >= 0 {
			parts[i] += " " + string(attributes[at].AttributeType)
		}
	}
	return strings.Join(parts, ", ")
}

// billingOf returns how a table is billed. DynamoDB leaves this out for tables that were never on
// demand.
func billingOf(is *types.TableDescription) types.BillingMode {
	if is.BillingModeSummary == nil {
		return types.BillingModeProvisioned
	}
	return is.BillingModeSummary.BillingMode
}
