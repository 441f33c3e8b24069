package metered_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
	"github.com/tidemark-im/tidemark/storage/memory"
	"github.com/tidemark-im/tidemark/storage/metered"
	"github.com/tidemark-im/tidemark/storage/storagetest"
	"github.com/tidemark-im/tidemark/tracing"
)

func TestStore(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store {
		s := metered.New(slog.New(slog.DiscardHandler)).Store(memory.New())
		t.Cleanup(func() { s.Close() })
		return s
	})
}

// observations returns the number of measured calls of each operation.
func observations(t *testing.T, m *metered.Meter) map[string]uint64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]uint64)
	for _, family := range families {
		if family.GetName() != "tidemark_storage_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			counts[metric.GetLabel()[0].GetValue()] = metric.GetHistogram().GetSampleCount()
		}
	}
	return counts
}

// TestTrace_exemplars_are_of_appends makes each kind of call with the trace of a message.
func TestTrace_exemplars_are_of_appends(t *testing.T) {
	meter := metered.New(slog.New(slog.DiscardHandler))
	meter.Trace()
	ctx := tracing.With(t.Context(), tracing.Context{
		Trace: tracing.TraceID{1}, Span: tracing.SpanID{2},
	})
	store := meter.Store(memory.New())
	_, _ = store.Append(ctx, []tidemark.Draft{{ChatID: "c"}})
	_, _ = store.Chat(ctx, "c")
	_, _ = store.Heads(ctx, []tidemark.ChatID{"c"})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(meter)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, bucket := range metric.GetHistogram().GetBucket() {
				if bucket.GetExemplar() != nil {
					got = append(got, metric.GetLabel()[0].GetValue())
				}
			}
		}
	}
	if !slices.Equal(got, []string{"append"}) {
		t.Errorf("the calls with exemplars are %q, want append", got)
	}
}

// TestMeter_every_operation_by_its_own_name calls each method of the contract on a store that
// fails. So zero arguments are enough.
func TestMeter_every_operation_by_its_own_name(t *testing.T) {
	failing := storagetest.Fault(memory.New())
	failing.Before = func(string) error { return tidemark.Errorf(tidemark.Unavailable, "down") }
	meter := metered.New(slog.New(slog.DiscardHandler))
	store := reflect.ValueOf(meter.Store(failing))
	contract := reflect.TypeFor[storage.Store]()
	for i := range contract.NumMethod() {
		name := contract.Method(i).Name
		if name == "Close" || name == "Incarnation" || name == "Observe" {
			continue
		}
		method := store.MethodByName(name)
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		for j := 1; j < method.Type().NumIn(); j++ {
			args = append(args, reflect.Zero(method.Type().In(j)))
		}
		before := observations(t, meter)
		results := method.Call(args)
		err, _ := results[len(results)-1].Interface().(error)
		if tidemark.CodeOf(err) != tidemark.Unavailable {
			t.Errorf("%s: error %v, want the store's", name, err)
		}
		label := snake(name)
		after := observations(t, meter)
		for operation, n := range after {
			want := before[operation]
			if operation == label {
				want++
			}
			if n != want {
				t.Errorf("after %s: %d calls of %s, want %d", name, n, operation, want)
			}
		}
		if _, known := after[label]; !known {
			t.Errorf("%s is not measured as %s", name, label)
		}
	}
}

// snake converts the name of a method to snake case.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if r >= 'A' && r <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func TestMeter_failures_are_counted_and_logged_with_their_request(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	tests := []struct {
		name  string
		err   error
		level string // of the line, "" if there is none
		code  string
	}{
		{
			"a fault",
			tidemark.Errorf(tidemark.Unavailable, "the disk is full"), "WARN", "UNAVAILABLE",
		},
		{"a bug", errors.New("no such table"), "ERROR", "INTERNAL"},
		{
			"a caller who left",
			tidemark.Wrap(tidemark.Unavailable, gone.Err(), "the call ran out of time"), "DEBUG",
			"UNAVAILABLE",
		},
		{"an answer", tidemark.Errorf(tidemark.NotFound, "no such chat"), "", "NOT_FOUND"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var log bytes.Buffer
			meter := metered.New(slog.New(slog.NewJSONHandler(&log,
				&slog.HandlerOptions{Level: slog.LevelDebug})))
			failing := storagetest.Fault(memory.New())
			failing.Before = func(string) error { return tt.err }
			ctx := context.WithoutCancel(tidemark.WithRequestID(t.Context(), "req-7"))
			_, _ = meter.Store(failing).Chat(ctx, "c")
			want := "# HELP tidemark_storage_errors_total Calls of the storage that failed, by " +
				"operation and code. UNAVAILABLE and INTERNAL are faults, the others answers.\n" +
				"# TYPE tidemark_storage_errors_total counter\n" +
				`tidemark_storage_errors_total{code="` + tt.code + `",operation="chat"} 1` +
				"\n"
			if err := testutil.CollectAndCompare(meter, strings.NewReader(want),
				"tidemark_storage_errors_total"); err != nil {
				t.Error(err)
			}
			if tt.level == "" {
				if log.Len() > 0 {
					t.Errorf("logged: %s", log.String())
				}
				return
			}
			var line struct {
				Level, Msg, Operation, Code, Error string
				Took                               time.Duration
				RequestID                          string `json:"request_id"`
			}
			if err := json.Unmarshal(log.Bytes(), &line); err != nil {
				t.Fatalf("%v in %q, want one line", err, log.String())
			}
			if line.Level != tt.level || line.Operation != "chat" || line.Code != tt.code ||
				line.RequestID != "req-7" || line.Error != tt.err.Error() || line.Took <= 0 {
				t.Errorf("logged: %s", log.String())
			}
		})
	}
}

func TestMeter_commits_by_what_was_in_them(t *testing.T) {
	meter := metered.New(slog.New(slog.DiscardHandler))
	meter.Committed(3, 0, time.Millisecond)
	meter.Committed(0, 40, time.Millisecond)
	meter.Committed(0, 0, time.Millisecond)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(meter)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if name, ok := strings.CutPrefix(family.GetName(), "tidemark_commit_"); ok {
				got[name+"_count"] += float64(metric.GetHistogram().GetSampleCount())
				got[name+"_sum"] += metric.GetHistogram().GetSampleSum()
			}
		}
	}
	want := map[string]float64{
		"seconds_count": 3, "seconds_sum": .003, "sends_count": 1, "sends_sum": 3, "acks_count": 1,
		"acks_sum": 40,
	}
	for name, n := range want {
		if d := got[name] - n; d > 1e-9 || d < -1e-9 {
			t.Errorf("%s = %v, want %v", name, got[name], n)
		}
	}
}

// TestMeter_costs_no_allocation: every message passes through the meter.
func TestMeter_costs_no_allocation(t *testing.T) {
	plain := memory.New()
	chats := []tidemark.ChatID{"c"}
	count := func(s storage.Store) float64 {
		return testing.AllocsPerRun(100, func() {
			if _, err := s.Heads(t.Context(), chats); err != nil {
				t.Error(err)
			}
		})
	}
	without, with := count(plain), count(metered.New(slog.New(slog.DiscardHandler)).Store(plain))
	if with > without {
		t.Errorf("a call costs %v allocations, %v without the meter", with, without)
	}
}

// BenchmarkMeter compares a call with and without the meter.
func BenchmarkMeter(b *testing.B) {
	meter := metered.New(slog.New(slog.DiscardHandler))
	chats := []tidemark.ChatID{}
	for name, s := range map[string]storage.Store{
		"without": memory.New(),
		"with":    meter.Store(memory.New()),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = s.Heads(b.Context(), chats)
			}
		})
	}
}
