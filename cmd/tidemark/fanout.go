package main

import (
	"context"
	"log/slog"
	"regexp"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/kafka"
	"github.com/tidemark-im/tidemark/reach/kafka/fanout"
	"github.com/tidemark-im/tidemark/reach/outlet"
	"github.com/tidemark-im/tidemark/server"
)

// fanoutKind is the kind of the outlet that hands messages over, and its id.
const fanoutKind = "fanout"

// The values of --fanout.
const (
	fanoutDirect = "direct"
	fanoutKafka  = "kafka"
	// fanoutPrefix begins the name of the topic, unless --fanout names another prefix.
	fanoutPrefix = "tidemark"
)

// fanoutSettings say how messages get from the node that stores them to their recipients.
type fanoutSettings struct {
	// byKafka says that workers hand over, by way of Kafka.
	byKafka bool
	prefix  string
	cluster kafka.Cluster
}

// fanout checks --fanout. cluster is that of --kafka, without brokers if there is none.
func (f *outletFlags) fanout(cluster kafka.Cluster) (fanoutSettings, error) {
	kind, prefix, named := strings.Cut(f.Fanout, ":")
	switch {
	case f.Fanout == "" || f.Fanout == fanoutDirect:
		return fanoutSettings{}, nil
	case kind != fanoutKafka,
		named && !regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}$`).MatchString(prefix):
		return fanoutSettings{}, usagef("--fanout %q must be direct, kafka, or kafka:PREFIX with "+
			"a prefix of 1 to 200 of the characters A-Z a-z 0-9 . _ -", f.Fanout)
	case f.Kafka == "":
		return fanoutSettings{}, usagef("--fanout %s needs --kafka, which says where the brokers "+
			"are; give all nodes both", f.Fanout)
	case !named:
		prefix = fanoutPrefix
	}
	return fanoutSettings{byKafka: true, prefix: prefix, cluster: cluster}, nil
}

// fanoutWork is what hands messages over for other nodes. engine and core are set before it works.
type fanoutWork struct {
	*fanout.Fanout
	engine *reach.Engine
	core   *server.Server
}

// HandOver implements server.Workers.
func (w *fanoutWork) HandOver() bool { return w.engine.Delivers(fanoutKind) }

// fanout returns what hands messages over, and adds its kind of outlet. Each node serves the kind:
// after a change of --fanout, messages that nodes have left to it may still be there.
func (o *options) fanout(
	store openedStore, others *peers, kinds map[string]reach.Kind, log *slog.Logger,
) (*fanoutWork, error) {
	work := &fanoutWork{}
	set := o.outlet.fanout
	var err error
	work.Fanout, err = fanout.New(fanout.Config{
		Cluster: set.cluster, Prefix: set.prefix, Incarnation: store.Incarnation(), Log: log,
		Store: store,
		HandOver: func(ctx context.Context, messages []tidemark.Message) []error {
			return work.core.HandOver(ctx, messages)
		},
		Lost: func() { work.core.Reconcile() },
	})
	if err != nil {
		return nil, err
	}
	others.counters = append(others.counters, work.Counters)
	kinds[fanoutKind] = reach.Kind{
		Open:   func(*reach.Spec, []string) (outlet.Client, error) { return work.Fanout, nil },
		Own:    fanoutKind,
		Events: []outlet.Type{outlet.MessagePersisted},
		Off:    !set.byKafka,
		Fixed:  true,
		Urgent: true,
	}
	return work, nil
}
