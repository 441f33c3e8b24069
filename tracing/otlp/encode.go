package otlp

import (
	"time"

	collector "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/tidemark-im/tidemark/tracing"
)

// scope names what recorded the spans.
const scope = "github.com/tidemark-im/tidemark"

// request returns the request that sends spans.
func (e *Exporter) request(spans []tracing.Span) *collector.ExportTraceServiceRequest {
	encoded := make([]*trace.Span, len(spans))
	for i := range spans {
		encoded[i] = encode(&spans[i])
	}
	return &collector.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		Resource: &resource.Resource{Attributes: []*common.KeyValue{
			text("service.name", "tidemark"),
			text("service.version", e.cfg.Version),
			text("service.instance.id", e.cfg.Node),
		}},
		ScopeSpans: []*trace.ScopeSpans{{
			Scope: &common.InstrumentationScope{Name: scope, Version: e.cfg.Version},
			Spans: encoded,
		}},
	}}}
}

func encode(s *tracing.Span) *trace.Span {
	encoded := &trace.Span{
		TraceId:           s.Trace[:],
		SpanId:            s.Span[:],
		Name:              s.Name,
		Kind:              trace.Span_SpanKind(s.Kind),
		StartTimeUnixNano: nanoseconds(s.Start),
		EndTimeUnixNano:   nanoseconds(s.End),
	}
	if s.Parent != (tracing.SpanID{}) {
		encoded.ParentSpanId = s.Parent[:]
	}
	for i := range s.Links {
		encoded.Links = append(encoded.Links, &trace.Span_Link{
			TraceId: s.Links[i].Trace[:], SpanId: s.Links[i].Span[:],
		})
	}
	for _, a := range s.Attributes {
		attribute := number(a.Key, a.Number)
		if a.Text != "" {
			attribute = text(a.Key, a.Text)
		}
		encoded.Attributes = append(encoded.Attributes, attribute)
	}
	if s.Failed != "" {
		encoded.Status = &trace.Status{
			Code: trace.Status_STATUS_CODE_ERROR, Message: s.Failed,
		}
	}
	return encoded
}

// nanoseconds returns a time of day since 1970. No span is older.
func nanoseconds(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{
		Value: &common.AnyValue_StringValue{StringValue: value},
	}}
}

func number(key string, value int64) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{
		Value: &common.AnyValue_IntValue{IntValue: value},
	}}
}
