package kafka_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-im/tidemark/reach/kafka"
)

// TestCheck_names_missing_rights of users with some of those that docs/cluster.md lists.
func TestCheck_names_missing_rights(t *testing.T) {
	const topic = "tidemark.fanout"
	right := func(of kmsg.ACLResourceType, operation kmsg.ACLOperation) kfake.ACL {
		return kfake.ACL{
			Resource: of, Name: topic, Pattern: kmsg.ACLResourcePatternTypePrefixed,
			Operation: operation, Allow: true,
		}
	}
	write := right(kmsg.ACLResourceTypeTopic, kmsg.ACLOperationWrite)
	read := right(kmsg.ACLResourceTypeTopic, kmsg.ACLOperationRead)
	join := right(kmsg.ACLResourceTypeGroup, kmsg.ACLOperationRead)
	const method, password = "SCRAM-SHA-512", "secret"
	cluster := fake(t, kfake.NumBrokers(1), kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.SeedTopics(1, topic),
		kfake.User(method, "all", password, write, read, join),
		kfake.User(method, "reader", password, read, join),
		kfake.User(method, "lonely", password, write, read),
		kfake.User(method, "nobody", password))
	for user, want := range map[string]string{
		"all":    "",
		"reader": "lacks rights for the topic tidemark.fanout; grant Write",
		"lonely": "may not join groups; grant Read for groups",
		"nobody": "may not use the topic tidemark.fanout; grant Describe, Read and Write",
		"wrong":  "check --kafka",
	} {
		c, err := kafka.ParseURL("kafka://" + user + ":secret@" + cluster.ListenAddrs()[0])
		if err != nil {
			t.Fatal(err)
		}
		found, err := c.Check(t.Context(), topic)
		switch {
		case want == "" && err != nil, want != "" && err == nil,
			err != nil && (!strings.Contains(err.Error(), want) ||
				strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %v, want %q", user, err, want)
		case want == "" && !strings.Contains(strings.Join(found.Notes, " "), "DescribeConfigs"):
			t.Errorf("%s: nothing is said of the settings that may not be read: %+v", user, found)
		}
	}
}

// TestCheck_waits_for_a_coordinator that a cluster has chosen, and that still reads its groups.
func TestCheck_waits_for_a_coordinator(t *testing.T) {
	const (
		topic    = "tidemark.fanout"
		refusals = 3 // which are more than the library repeats by itself
	)
	for _, starting := range []*kerr.Error{
		kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress,
	} {
		t.Run(starting.Message, func(t *testing.T) {
			cluster := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
			var asked atomic.Int32
			cluster.ControlKey(int16(kmsg.DescribeGroups),
				func(r kmsg.Request) (kmsg.Response, error, bool) {
					if asked.Add(1) > refusals {
						return nil, nil, false
					}
					cluster.KeepControl()
					answer := kmsg.NewDescribeGroupsResponseGroup()
					answer.Group = r.(*kmsg.DescribeGroupsRequest).Groups[0]
					answer.ErrorCode = starting.Code
					response := r.ResponseKind().(*kmsg.DescribeGroupsResponse)
					response.Groups = append(response.Groups, answer)
					return response, nil, true
				})
			checked := kafka.Cluster{Brokers: cluster.ListenAddrs()}
			if _, err := checked.Check(t.Context(), topic); err != nil || asked.Load() <= refusals {
				t.Errorf("asked %d times: %v", asked.Load(), err)
			}
		})
	}
}
