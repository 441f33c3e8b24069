package tracing

import "encoding/hex"

// Lengths of the parts of a traceparent: 00-TRACE-SPAN-FLAGS.
const (
	traceAt   = len("00-")
	spanAt    = traceAt + 2*len(TraceID{}) + len("-")
	flagsAt   = spanAt + 2*len(SpanID{}) + len("-")
	parentLen = flagsAt + len("00")
)

// flagSampled says that the caller records its own spans of the trace.
const flagSampled = 1

// ParseParent returns the caller's span and whether the caller records it, from the header
// traceparent (W3C Trace Context, level 1). A header that is malformed or absent is no span.
func ParseParent(header string) (caller Context, sampled bool) {
	var version, flags [1]byte
	if len(header) < parentLen || header[traceAt-1] != '-' || header[spanAt-1] != '-' ||
		header[flagsAt-1] != '-' {
		return Context{}, false
	}
	fine := decode(version[:], header[:traceAt-1]) &&
		decode(caller.Trace[:], header[traceAt:spanAt-1]) &&
		decode(caller.Span[:], header[spanAt:flagsAt-1]) &&
		decode(flags[:], header[flagsAt:parentLen])
	// Later versions may append fields. Version ff does not exist.
	longer := version[0] != 0 && len(header) > parentLen && header[parentLen] == '-'
	switch {
	case !fine, version[0] == 0xff, len(header) > parentLen && !longer, !caller.Valid():
		return Context{}, false
	}
	return caller, flags[0]&flagSampled != 0
}

// decode decodes lower-case hexadecimal digits. It returns false if the text has others.
func decode(to []byte, text string) bool {
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	n, err := hex.Decode(to, []byte(text))
	return err == nil && n == len(to)
}
