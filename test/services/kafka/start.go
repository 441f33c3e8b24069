package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark/test/services/ports"
	"github.com/tidemark-im/tidemark/test/services/process"
)

// startWithin is how long Java may take to start on a busy machine.
const startWithin = 5 * time.Minute

// settings are those of a node that is broker and controller. Memory and files are small.
const settings = `
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[2]d
listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d
advertised.listeners=PLAINTEXT://127.0.0.1:%[1]d
controller.listener.names=CONTROLLER
log.dirs=%[3]s
broker.session.timeout.ms=2000
broker.heartbeat.interval.ms=500
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
log.segment.bytes=1048576
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=1
num.io.threads=2
background.threads=2
`

// clusterID names each cluster. It is any UUID in base64.
const clusterID = "AAAAAAAAAAAAAAAAAAAAAQ"

// start starts a broker with an empty directory.
func start() (_ *Server, err error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, errors.New("java is not installed; run: make kafka-deps")
	}
	jars, err := find()
	if err != nil {
		return nil, err
	}
	home, err := process.NewHome(process.Settings{Service: "kafka"})
	if err != nil {
		return nil, err
	}
	s := &Server{home: home}
	run := func(class string, args ...string) *exec.Cmd {
		return home.Command(java, append([]string{
			"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
			"-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-cp", jars + "/*", class,
		}, args...)...)
	}
	s.broker = &process.Program{
		Home: home, Name: "Kafka", File: "log", Taken: "Address already in use",
		Command: func() *exec.Cmd { return run("kafka.Kafka", s.conf()) },
		Serves:  func(said string) bool { return strings.Contains(said, "Kafka Server started") },
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	err = process.OnFreePort(func(port int) error {
		s.port = port
		if s.control, err = ports.Free(); err != nil {
			return err
		}
		if err := s.format(run("kafka.tools.StorageTool", "format", "-t", clusterID, "-c",
			s.conf())); err != nil {
			return err
		}
		return s.broker.Start(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	return s, nil
}

func (s *Server) conf() string { return filepath.Join(s.home.Dir(), "server.properties") }

// format writes the settings, and makes an empty data directory by a command.
func (s *Server) format(tool *exec.Cmd) error {
	data := filepath.Join(s.home.Dir(), "data")
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	text := fmt.Sprintf(settings, s.port, s.control, data)
	if err := os.WriteFile(s.conf(), []byte(text), 0o600); err != nil {
		return err
	}
	if said, err := tool.CombinedOutput(); err != nil {
		return fmt.Errorf("formatting the directory of Kafka: %w:\n%s", err, said)
	}
	return nil
}

// find returns the directory into which scripts/kafka-deps has put Kafka.
func find() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			continue
		}
		jars := filepath.Join(dir, ".build/kafka")
		if _, err := os.Stat(filepath.Join(jars, "jars.sha256")); err == nil {
			return jars, nil
		}
	}
	return "", errors.New("there is no Kafka below .build; run: make kafka-deps")
}
