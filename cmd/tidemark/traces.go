package main

import (
	"context"
	"log/slog"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"regexp"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/tracing"
	"github.com/tidemark-im/tidemark/tracing/otlp"
)

// traceFlags configure traces (docs/observability.md).
type traceFlags struct {
	Endpoint string  `name:"trace-endpoint" env:"TIDEMARK_TRACE_ENDPOINT" placeholder:"URL" help:"OpenTelemetry collector that gets traces of messages, by OTLP over HTTP, such as http://127.0.0.1:4318. Without it nothing is traced."`
	Sample   float64 `name:"trace-sample" default:"0.01" env:"TIDEMARK_TRACE_SAMPLE" placeholder:"SHARE" help:"Share of all messages that is traced, from 0 to 1, if their callers send no traceparent. Default ${default}."`
}

// traceHeadersVariable is the only way to set what is sent to the collector as credentials.
const traceHeadersVariable = "TIDEMARK_TRACE_HEADERS"

// traceSettings are the checked flags and variables of traces. endpoint is "" if nothing is traced.
type traceSettings struct {
	endpoint string
	sample   float64
	headers  http.Header
}

// config returns the settings.
func (f *traceFlags) config() (traceSettings, error) {
	if f.Sample < 0 || f.Sample > 1 || f.Sample != f.Sample {
		return traceSettings{}, usagef("--trace-sample is %v; it is a share of all messages, "+
			"from 0 to 1", f.Sample)
	}
	headers, err := traceHeaders(os.Getenv(traceHeadersVariable))
	if err != nil || f.Endpoint == "" {
		return traceSettings{}, err
	}
	u, err := url.Parse(f.Endpoint)
	switch {
	// The error and the URL may contain a password.
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.User != nil,
		u.RawQuery != "", u.Fragment != "":
		return traceSettings{}, usagef("--trace-endpoint is not the URL of a collector, such as "+
			"http://127.0.0.1:4318; credentials belong in %s", traceHeadersVariable)
	//rule:trace_holds_no_secret.no-headers-in-clear-text
	case u.Scheme == "http" && len(headers) > 0 && !loopback(u.Hostname()):
		return traceSettings{}, usagef("%s would be sent in clear text; use a --trace-endpoint "+
			"with https, or a collector on this machine", traceHeadersVariable)
	}
	return traceSettings{endpoint: f.Endpoint, sample: f.Sample, headers: headers}, nil
}

// headerName and headerValue match headers of HTTP (RFC 9110 §5).
var (
	headerName  = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")
	headerValue = regexp.MustCompile(`^[\t -~]*$`)
)

// traceHeaders parses NAME=VALUE,NAME=VALUE, as OTEL_EXPORTER_OTLP_HEADERS has it: values are
// percent-encoded.
func traceHeaders(text string) (http.Header, error) {
	headers := make(http.Header)
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, found := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if err != nil || !found || !headerName.MatchString(name) ||
			!headerValue.MatchString(value) {
			return nil, usagef("%s must be NAME=VALUE, or several of them with commas between; "+
				"values are percent-encoded", traceHeadersVariable)
		}
		headers.Add(textproto.CanonicalMIMEHeaderKey(name), value)
	}
	return headers, nil
}

// tracer returns the tracer of a process, or nil if nothing is traced.
func (s *traceSettings) tracer() *tracing.Tracer {
	if s.endpoint == "" {
		return nil
	}
	return tracing.New(s.sample)
}

// export returns the loop that sends the spans of a tracer to the collector.
func (s *traceSettings) export(
	tracer *tracing.Tracer, node tidemark.NodeID, log *slog.Logger,
) func(context.Context) {
	if tracer == nil {
		return func(context.Context) {}
	}
	return otlp.New(otlp.Config{
		Endpoint: s.endpoint, Headers: s.headers, Tracer: tracer, Version: version,
		Node: string(node), Logger: log,
	}).Run
}
