// Package webhook delivers events to the HTTP servers of others, as Standard Webhooks says
// (standardwebhooks.com). It is a leaf of reach. No outlet can be configured yet, so nothing uses
// it.
package webhook
