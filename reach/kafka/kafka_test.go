package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/tidemark-im/tidemark/reach/kafka/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake starts a fake cluster of three brokers, which ends with the test.
func fake(t testing.TB, options ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster
}

// TestSuite_on_a_fake_cluster: test/services/kafka runs the same suite on Apache Kafka.
func TestSuite_on_a_fake_cluster(t *testing.T) { kafkatest.Run(t, fake(t).ListenAddrs()) }
