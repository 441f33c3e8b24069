package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leastRetention is the least time for which a topic should keep what a group has to read.
const leastRetention = time.Hour

// So often, and with this pause, Check asks for the coordinator of a group.
const (
	coordinatorTries = 60
	coordinatorPause = 500 * time.Millisecond
)

// Checked is what Check finds. Notes are no problems.
type Checked struct {
	Fine  string
	Notes []string
}

// Check looks whether the brokers answer, and whether a topic and a group whose name begins with
// its name can be used. Without a topic it looks for the brokers only. It changes nothing. The
// error joins one error for each problem, and each says what to do.
func (c *Cluster) Check(ctx context.Context, topic string) (Checked, error) {
	var last connects
	client, err := kgo.NewClient(append(c.Options(), kgo.WithHooks(&last), kgo.WithContext(ctx),
		kgo.RequestTimeoutOverhead(answerTimeout), kgo.RequestRetries(1),
		kgo.RetryTimeout(2*answerTimeout))...)
	if err != nil {
		return Checked{}, err
	}
	defer client.Close()
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{}
	if topic != "" {
		wanted := kmsg.NewMetadataRequestTopic()
		wanted.Topic = &topic
		request.Topics = append(request.Topics, wanted)
		request.IncludeTopicAuthorizedOperations = true
	}
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		if cause := last.last(); cause != nil {
			err = cause
		}
		return Checked{}, fmt.Errorf("no broker of %s can be used: %w; check --kafka, and this "+
			"machine's way to it", strings.Join(c.Brokers, ","), err)
	}
	found := Checked{Fine: fmt.Sprintf("%d brokers answer", len(answer.Brokers))}
	if topic == "" || len(answer.Topics) != 1 {
		return found, nil
	}
	about := &answer.Topics[0]
	switch err := kerr.ErrorForCode(about.ErrorCode); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return found, fmt.Errorf("the topic %s does not exist; create it", topic)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return found, fmt.Errorf("the user of Kafka may not use the topic %s; grant Describe, "+
			"Read and Write", topic)
	case err != nil:
		return found, fmt.Errorf("the topic %s cannot be used: %w; repair the cluster", topic, err)
	}
	found.Fine += fmt.Sprintf("; the topic %s has %d partitions", topic, len(about.Partitions))
	found.Notes = replicas(about)
	errs := []error{mayUse(topic, about.AuthorizedOperations), mayJoin(ctx, client, topic)}
	settings, note := settingsOf(ctx, client, topic)
	if note != "" {
		found.Notes = append(found.Notes, note)
	}
	return found, errors.Join(append(errs, judgeSettings(topic, settings)...)...)
}

// replicas returns a note if a partition has few replicas.
func replicas(topic *kmsg.MetadataResponseTopic) []string {
	least := slices.MinFunc(topic.Partitions, func(a, b kmsg.MetadataResponseTopicPartition) int {
		return len(a.Replicas) - len(b.Replicas)
	})
	if n := len(least.Replicas); n < 3 {
		return []string{fmt.Sprintf("the topic %s has %d replicas; with three, Kafka loses no "+
			"message with a broker", *topic.Topic, n)}
	}
	return nil
}

// mayUse returns an error if operations lack one that is needed. Kafka before 2.3 names none.
func mayUse(topic string, operations int32) error {
	var missing []string
	for _, o := range []kmsg.ACLOperation{kmsg.ACLOperationRead, kmsg.ACLOperationWrite} {
		if operations > 0 && operations&(1<<o) == 0 {
			missing = append(missing, map[kmsg.ACLOperation]string{
				kmsg.ACLOperationRead: "Read", kmsg.ACLOperationWrite: "Write",
			}[o])
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("the user of Kafka lacks rights for the topic %s; grant %s", topic,
		strings.Join(missing, " and "))
}

// mayJoin returns an error if the user may not be in groups of the topic. A cluster that has had no
// group yet needs some seconds until it has a coordinator, and that until it has read its groups.
func mayJoin(ctx context.Context, client *kgo.Client, topic string) error {
	err := groupRights(ctx, client, topic)
	for range coordinatorTries - 1 {
		starting := errors.Is(err, kerr.CoordinatorNotAvailable) ||
			errors.Is(err, kerr.CoordinatorLoadInProgress)
		if !starting || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(coordinatorPause):
		}
		err = groupRights(ctx, client, topic)
	}
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return fmt.Errorf("the user of Kafka may not join groups; grant Read for groups whose "+
			"names begin with %s", topic)
	case errors.Is(err, kerr.GroupIDNotFound):
		return nil
	case err != nil:
		return fmt.Errorf("the groups of Kafka cannot be used: %w; repair the cluster", err)
	}
	return nil
}

// groupRights asks for a group of the topic.
func groupRights(ctx context.Context, client *kgo.Client, topic string) error {
	request := kmsg.NewPtrDescribeGroupsRequest()
	request.Groups, request.IncludeAuthorizedOperations = []string{topic + ".doctor"}, true
	answer, err := request.RequestWith(ctx, client)
	if err != nil || len(answer.Groups) != 1 {
		return err
	}
	group := &answer.Groups[0]
	if err := kerr.ErrorForCode(group.ErrorCode); err != nil {
		return err
	}
	operations := group.AuthorizedOperations
	if operations > 0 && operations&(1<<kmsg.ACLOperationRead) == 0 {
		return kerr.GroupAuthorizationFailed
	}
	return nil
}

// settingsOf returns the settings of a topic, or a note that says why it cannot.
func settingsOf(
	ctx context.Context, client *kgo.Client, topic string,
) (settings map[string]string, note string) {
	resource := kmsg.NewDescribeConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	request := kmsg.NewPtrDescribeConfigsRequest()
	request.Resources = append(request.Resources, resource)
	answer, err := request.RequestWith(ctx, client)
	if err == nil && len(answer.Resources) == 1 {
		err = kerr.ErrorForCode(answer.Resources[0].ErrorCode)
	}
	if err != nil {
		return nil, fmt.Sprintf("the settings of the topic %s cannot be read (%v); grant "+
			"DescribeConfigs, and they are checked", topic, err)
	}
	settings = map[string]string{}
	for _, resource := range answer.Resources {
		for _, one := range resource.Configs {
			if one.Value != nil {
				settings[one.Name] = *one.Value
			}
		}
	}
	return settings, ""
}

// judgeSettings returns an error for each setting with which messages would be lost.
func judgeSettings(topic string, settings map[string]string) (errs []error) {
	if strings.Contains(settings["cleanup.policy"], "compact") {
		errs = append(errs, fmt.Errorf("the topic %s is compacted, which removes messages; set "+
			"cleanup.policy to delete", topic))
	}
	ms, err := strconv.ParseInt(settings["retention.ms"], 10, 64)
	kept := time.Duration(ms) * time.Millisecond
	if err == nil && ms >= 0 && kept < leastRetention {
		errs = append(errs, fmt.Errorf("the topic %s keeps messages for %v only, and workers may "+
			"be away for longer; set retention.ms to a day, 86400000", topic, kept))
	}
	return errs
}
