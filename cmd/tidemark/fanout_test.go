package main

import (
	"strings"
	"testing"
)

// TestFanoutFlag_is_checked before anything is opened.
func TestFanoutFlag_is_checked(t *testing.T) {
	for _, c := range []struct {
		fanout, kafka string
		prefix        string
		wrong         string
	}{
		{fanout: ""},
		{fanout: "direct"},
		{fanout: "direct", kafka: "kafka://broker"},
		{fanout: "kafka", kafka: "kafka://broker", prefix: "tidemark"},
		{fanout: "kafka:chat-2", kafka: "kafka://broker", prefix: "chat-2"},
		{fanout: "kafka", wrong: "needs --kafka"},
		{fanout: "kafka:", kafka: "kafka://broker", wrong: "kafka:PREFIX"},
		{fanout: "kafka:a b", kafka: "kafka://broker", wrong: "kafka:PREFIX"},
		{fanout: "direct:x", kafka: "kafka://broker", wrong: "must be direct, kafka"},
		{fanout: "redis", kafka: "kafka://broker", wrong: "must be direct, kafka"},
	} {
		set, err := (&outletFlags{Fanout: c.fanout, Kafka: c.kafka}).config(false)
		switch {
		case c.wrong != "":
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("--fanout %q --kafka %q: got %v, want %q", c.fanout, c.kafka, err, c.wrong)
			}
		case err != nil || set.fanout.prefix != c.prefix || set.fanout.byKafka != (c.prefix != ""):
			t.Errorf("--fanout %q --kafka %q: got %+v, %v, want the prefix %q", c.fanout, c.kafka,
				set.fanout, err, c.prefix)
		}
	}
}
