// Package webhook delivers events to the HTTP servers of others, as Standard Webhooks says
// (standardwebhooks.com). It is a leaf of reach. docs/webhooks.md is for those who receive them.
package webhook
