package otlp

import "net/http"

// NewVia returns an Exporter whose requests go to a RoundTripper in place of the network.
func NewVia(cfg Config, network http.RoundTripper) *Exporter {
	e := New(cfg)
	e.client.Transport = network
	return e
}
