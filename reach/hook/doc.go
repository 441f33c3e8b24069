// Package hook asks the operator's HTTP server whether messages may be stored (docs/moderation.md,
// "Ask before storing"). A request is signed as those of webhooks are. The answer allows, refuses
// or replaces each message. If there is no valid answer in time, the policy decides.
//
// Files: hook.go asks and counts; wire.go has the request and the answer; breaker.go stops asking
// for a while after several failures.
package hook
