package schema

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/internal/signal"
)

// settle takes the steps that make one table match its definition.
func (s *Tables) settle(ctx context.Context, d table) error {
	return s.settles(ctx, d, func() error { return nil })
}

// settles is settle that asks whether it may, each time before it creates the table.
func (s *Tables) settles(ctx context.Context, d table, may func() error) error {
	var is state
	// refused is a step that DynamoDB refused once. It may have described the table as it was
	// before, so one refusal is not final.
	refused := done
	for w, look := (waiting{}), true; ; {
		if look {
			now, err := s.describe(ctx, d)
			if err != nil {
				return err
			}
			is = state{table: now}
		}
		next, err := d.next(is, s.to.PointInTimeRecovery)
		if err != nil || next == done {
			return err
		}
		if next == create {
			if err := may(); err != nil {
				return err
			}
		}
		err = s.do(ctx, d, next, &is)
		switch {
		case err != nil && named(err, validation) && next != refused:
			refused = next
		case err != nil && !busy(err):
			return err
		}
		if look = err != nil || next != askExpiry && next != askRecovery; look {
			if err := w.pause(ctx, d); err != nil {
				return err
			}
		}
	}
}

// do takes a step. It writes the answer to a question into is.
func (s *Tables) do(ctx context.Context, d table, next step, is *state) (err error) {
	switch next {
	case create:
		newest := s.newest(d)
		_, err = ask(ctx, s.api.CreateTable, &newest.CreateTableInput)
	case protect:
		_, err = ask(ctx, s.api.UpdateTable, &dynamodb.UpdateTableInput{
			TableName:                 d.TableName,
			DeletionProtectionEnabled: d.DeletionProtectionEnabled,
		})
	case encrypt:
		_, err = ask(ctx, s.api.UpdateTable, &dynamodb.UpdateTableInput{
			TableName:        d.TableName,
			SSESpecification: d.SSESpecification,
		})
	case addIndex:
		_, err = ask(ctx, s.api.UpdateTable, d.indexing(is.table))
	case askExpiry:
		var out *dynamodb.DescribeTimeToLiveOutput
		out, err = ask(ctx, s.api.DescribeTimeToLive,
			&dynamodb.DescribeTimeToLiveInput{TableName: d.TableName})
		if err == nil {
			is.expiry = out.TimeToLiveDescription
		}
	case expire:
		_, err = ask(ctx, s.api.UpdateTimeToLive, &dynamodb.UpdateTimeToLiveInput{
			TableName:               d.TableName,
			TimeToLiveSpecification: d.TimeToLiveSpecification,
		})
	case askRecovery:
		is.recovery, err = s.recovery(ctx, d)
	case backUp:
		_, err = ask(ctx, s.api.UpdateContinuousBackups, &dynamodb.UpdateContinuousBackupsInput{
			TableName: d.TableName,
			PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{
				PointInTimeRecoveryEnabled: aws.Bool(s.to.PointInTimeRecovery),
			},
		})
	}
	return err
}

// indexing returns the call that adds the first missing index. One call can add only one.
func (d table) indexing(is *types.TableDescription) *dynamodb.UpdateTableInput {
	in := &dynamodb.UpdateTableInput{
		TableName: d.TableName, AttributeDefinitions: d.AttributeDefinitions,
	}
	for _, wanted := range d.GlobalSecondaryIndexes {
		if in.GlobalSecondaryIndexUpdates != nil || indexIn(is, *wanted.IndexName) != nil {
			continue
		}
		in.GlobalSecondaryIndexUpdates = []types.GlobalSecondaryIndexUpdate{{
			Create: &types.CreateGlobalSecondaryIndexAction{
				IndexName: wanted.IndexName, KeySchema: wanted.KeySchema,
				Projection: wanted.Projection,
			},
		}}
	}
	return in
}

// recovery returns whether a table has point-in-time recovery. Emulators do not know the call.
func (s *Tables) recovery(ctx context.Context, d table) (types.PointInTimeRecoveryStatus, error) {
	out, err := ask(ctx, s.api.DescribeContinuousBackups,
		&dynamodb.DescribeContinuousBackupsInput{TableName: d.TableName})
	switch {
	case named(err, "UnknownOperationException") && !s.to.PointInTimeRecovery:
		return types.PointInTimeRecoveryStatusDisabled, nil
	case named(err, "UnknownOperationException"):
		return "", tidemark.Wrap(tidemark.Invalid, err,
			"this DynamoDB has no point-in-time recovery; write point_in_time_recovery=off")
	case err != nil:
		return "", err
	}
	backups := out.ContinuousBackupsDescription
	if backups == nil || backups.PointInTimeRecoveryDescription == nil {
		return types.PointInTimeRecoveryStatusDisabled, nil
	}
	return backups.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus, nil
}

// describe returns the description of a table, nil if there is no such table.
func (s *Tables) describe(ctx context.Context, d table) (*types.TableDescription, error) {
	out, err := ask(ctx, s.api.DescribeTable, &dynamodb.DescribeTableInput{TableName: d.TableName})
	switch {
	case missing(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return out.Table, nil
}

// drop deletes a table, and waits until it is gone.
func (s *Tables) drop(ctx context.Context, d table) error {
	for w := (waiting{}); ; {
		_, err := ask(ctx, s.api.DeleteTable, &dynamodb.DeleteTableInput{TableName: d.TableName})
		switch {
		case missing(err):
			return nil
		case err != nil && !busy(err): // A table is busy while it is created, changed or deleted.
			return err
		}
		if err := w.pause(ctx, d); err != nil {
			return err
		}
	}
}

// dropIndex deletes an index of a table, and waits until it is gone.
func (s *Tables) dropIndex(ctx context.Context, d table, name *string) error {
	for w := (waiting{}); ; {
		is, err := s.describe(ctx, d)
		if err != nil || is == nil {
			return err
		}
		found := indexIn(is, *name)
		if found == nil {
			return nil
		}
		if found.IndexStatus != types.IndexStatusDeleting {
			_, err = ask(ctx, s.api.UpdateTable, &dynamodb.UpdateTableInput{
				TableName: d.TableName,
				GlobalSecondaryIndexUpdates: []types.GlobalSecondaryIndexUpdate{
					{Delete: &types.DeleteGlobalSecondaryIndexAction{IndexName: name}},
				},
			})
			if err != nil && !busy(err) {
				return err
			}
		}
		if err := w.pause(ctx, d); err != nil {
			return err
		}
	}
}

// patience is how long a table may take to become ready. mostPause is the longest pause between two
// looks. At AWS a table takes ten seconds, or minutes with a key.
const (
	patience  = 10 * time.Minute
	mostPause = time.Second
)

// waiting paces the looks at a table until it is ready.
type waiting struct {
	began time.Time
	last  time.Duration
}

// pause waits twice as long as the last time. It returns Unavailable if the table has used up the
// patience.
func (w *waiting) pause(ctx context.Context, d table) error {
	switch now := time.Now(); {
	case w.began.IsZero():
		w.began, w.last = now, 2*time.Millisecond
	case now.Sub(w.began) > patience:
		return tidemark.Errorf(tidemark.Unavailable,
			"the table %s was not ready within %v; look at it in the console of AWS, and run the "+
				"command again", *d.TableName, patience)
	}
	w.last = min(2*w.last, mostPause)
	signal.Pause(ctx, w.last)
	return ctx.Err()
}
