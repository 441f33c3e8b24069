// Package kafka starts Apache Kafka for tests: one node that is broker and controller (KRaft), on
// free ports of the loopback interface. `make kafka-deps` downloads it; tests that lack it fail and
// say so.
//
// However the process of the tests ends, the broker ends and its directory is removed
// (test/services/process).
package kafka

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-im/tidemark/test/services/process"
)

// Server is a broker. Its data is on disk, and survives Kill. Its methods are safe for concurrent
// use, except that Kill, Run, Freeze and Thaw must not run concurrently.
type Server struct {
	home   *process.Home
	broker *process.Program
	// port is that of the broker, and control that of the controller.
	port, control int
}

// Start starts a broker for one test, and ends it with the test. It creates no topics by itself.
func Start(t testing.TB) *Server {
	t.Helper()
	s, err := start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			log := s.broker.Log()
			t.Logf("the end of the log of Kafka:\n%s", log[max(0, len(log)-3000):])
		}
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Serve starts a broker for a program that is no test, with topics of four partitions. Close ends
// it.
func Serve(topics ...string) (*Server, error) {
	s, err := start()
	if err != nil {
		return nil, err
	}
	if err := s.create(topics); err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

// Close ends a broker that Serve has started, and removes its directory.
func (s *Server) Close() error { return s.end() }

// create creates topics of four partitions.
func (s *Server) create(topics []string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Address()))
	if err != nil {
		return err
	}
	defer client.Close()
	request := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range topics {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 4, 1
		request.Topics = append(request.Topics, topic)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, topic := range answer.Topics {
		err = errors.Join(err, kerr.ErrorForCode(topic.ErrorCode))
	}
	return err
}

// Address returns 127.0.0.1:PORT. It stays the same for the life of the server.
func (s *Server) Address() string { return fmt.Sprint("127.0.0.1:", s.port) }

// PID returns the process id, 0 while it does not run.
func (s *Server) PID() int { return s.broker.PID() }

// Kill kills the broker with SIGKILL, and waits until it has ended.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.broker.Kill(t)
}

// Run starts a broker that was killed, on the same ports and data.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.broker.Run(t)
}

// Freeze stops the broker with SIGSTOP: connections stay open, and no request is answered.
func (s *Server) Freeze(t testing.TB) {
	t.Helper()
	s.broker.Signal(t, syscall.SIGSTOP)
}

// Thaw continues a broker that Freeze has stopped.
func (s *Server) Thaw(t testing.TB) {
	t.Helper()
	s.broker.Signal(t, syscall.SIGCONT)
}

// end ends the broker and removes its directory.
func (s *Server) end() error { return errors.Join(s.home.Close(), s.broker.Wait(time.Minute)) }
