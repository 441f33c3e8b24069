// With runs a command beside services of its own, which end with it:
//
//	go run ./test/services/with SERVICE[+SERVICE…] COMMAND ARG…
//
// A service is postgres, dynamodb, redis or kafka. For a database, STORE_URL is the URL of an empty
// database and STORE_PID the process id of its server.
//
// Postgres appends the lines of POSTGRES_SETTINGS to postgresql.conf. DynamoDB is the emulator,
// with its data in memory. If TEST_DYNAMODB_ENDPOINT names another DynamoDB, there is no process
// id, and the tables are dropped in the end. Redis is in REDIS_URL and REDIS_PID; it keeps nothing
// on disk. Kafka is in KAFKA_URL and KAFKA_PID, and has the topic tidemark.fanout.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark/test/services/dynamodb"
	"github.com/tidemark-im/tidemark/test/services/kafka"
	"github.com/tidemark-im/tidemark/test/services/postgres"
	"github.com/tidemark-im/tidemark/test/services/redis"
)

func main() {
	if len(os.Args) < 3 {
		usage()
	}
	known := map[string]func() (*service, error){
		"postgres": startPostgres, "dynamodb": startDynamoDB, "redis": startRedis,
		"kafka": startKafka,
	}
	var starts []func() (*service, error)
	for _, name := range strings.Split(os.Args[1], "+") {
		if known[name] == nil {
			usage()
		}
		starts = append(starts, known[name])
	}
	err := run(starts, os.Args[2], os.Args[3:])
	var failed *exec.ExitError
	switch {
	case errors.As(err, &failed):
		os.Exit(max(failed.ExitCode(), 1))
	case err != nil:
		fmt.Fprintln(os.Stderr, "with:", err)
		os.Exit(1)
	}
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: with SERVICE[+SERVICE…] COMMAND ARG…, "+
		"where SERVICE is postgres, dynamodb, redis or kafka")
	os.Exit(2)
}

// service is a service that was started, or found.
type service struct {
	name string // in the variables
	url  string
	pid  int // 0 if its process is not ours
	stop func() error
}

func startPostgres() (*service, error) {
	server, err := postgres.Serve(strings.Split(os.Getenv("POSTGRES_SETTINGS"), "\n")...)
	if err != nil {
		return nil, err
	}
	return &service{
		name: "STORE", url: server.URL("postgres"), pid: server.PID(), stop: server.Close,
	}, nil
}

func startDynamoDB() (*service, error) {
	server, err := dynamodb.SharedByMain() // it ends with this process
	if err != nil {
		return nil, err
	}
	prefix := fmt.Sprintf("with-%d-", os.Getpid())
	return &service{name: "STORE", url: server.URL(prefix), pid: server.PID(), stop: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		return server.Drop(ctx, prefix)
	}}, nil
}

func startRedis() (*service, error) {
	server, err := redis.Serve()
	if err != nil {
		return nil, err
	}
	return &service{name: "REDIS", url: server.URL(), pid: server.PID(), stop: server.Close}, nil
}

func startKafka() (*service, error) {
	server, err := kafka.Serve("tidemark.fanout")
	if err != nil {
		return nil, err
	}
	return &service{
		name: "KAFKA", url: "kafka://" + server.Address(), pid: server.PID(), stop: server.Close,
	}, nil
}

func run(starts []func() (*service, error), name string, args []string) (err error) {
	environment := os.Environ()
	for _, start := range starts {
		s, failed := start()
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		environment = append(environment, s.name+"_URL="+s.url)
		if s.pid != 0 {
			environment = append(environment, fmt.Sprintf("%s_PID=%d", s.name, s.pid))
		}
	}
	// The command gets the signals of the terminal too, and ends first.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	command := exec.Command(name, args...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Env = environment
	return command.Run()
}
