package auth

import (
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// Scope is something that an API key allows. A user's own credentials allow everything that the
// user may do.
type Scope string

// The scopes.
const (
	// ScopeAct reads and acknowledges for users, opens their streams, and makes tickets.
	ScopeAct Scope = "act"
	// ScopeSend sends messages and typing notices for users.
	ScopeSend Scope = "send"
	// ScopeChats creates and changes chats, and adds and removes members. A call without a user may
	// also read chats and members: the answers of the other calls have them anyway.
	ScopeChats Scope = "chats"
	// ScopeTokens makes tokens of users, which allow everything.
	ScopeTokens Scope = "tokens"
	// ScopeStats reads the figures of the server, and where users and chats stand: sessions, marks
	// and pending rows, but no message.
	ScopeStats Scope = "stats"
	// ScopeExport exports what is stored of a user, and ScopeErase also erases users.
	ScopeExport Scope = "export"
	ScopeErase  Scope = "erase"
	// ScopeModerate suspends users and signs them out. Messages of the key are not reviewed before
	// they are stored.
	ScopeModerate Scope = "moderate"
	// ScopeAudit reads the audit log.
	ScopeAudit Scope = "audit"
	// ScopeAdmin manages outlets, which get all messages of all chats.
	ScopeAdmin Scope = "admin"
)

// Scopes are all scopes. A key whose line names none has them all.
var Scopes = []Scope{
	ScopeAct, ScopeSend, ScopeChats, ScopeTokens, ScopeStats, ScopeModerate, ScopeExport,
	ScopeErase, ScopeAudit, ScopeAdmin,
}

// scopesPrefix begins the last word of a key's line, if the key has not all scopes.
const scopesPrefix = "scopes="

// ParseScopes returns the scopes of a list with commas.
//
// Error: Invalid (an unknown scope, or none).
func ParseScopes(list string) ([]Scope, error) {
	var scopes []Scope
	for name := range strings.SplitSeq(list, ",") {
		if !slices.Contains(Scopes, Scope(name)) {
			return nil, tidemark.BadParam(tidemark.Invalid, "scopes",
				"must be a list with commas of act, send, chats, tokens, stats, moderate, "+
					"export, erase, audit and admin")
		}
		scopes = append(scopes, Scope(name))
	}
	return scopes, nil
}

// Permits returns nil if the credentials allow one of the scopes, else Denied. The error names the
// first one.
func (id Identity) Permits(scopes ...Scope) error {
	allowed := func(scope Scope) bool { return slices.Contains(id.key.scopes, scope) }
	//rule:caller_does_only_what_they_may.scopes-of-keys
	if id.Backend && id.key != nil && !slices.ContainsFunc(scopes, allowed) {
		return tidemark.Errorf(tidemark.Denied,
			"the API key lacks the scope %s; the operator gives scopes in the file of keys",
			scopes[0])
	}
	return nil
}

// Operates returns nil if the caller is an API key, else Denied. The own credentials of users are
// for their chats, and not for the server. The error names the scope that a key needs.
func (id Identity) Operates(scope Scope) error {
	if !id.Backend {
		return tidemark.Errorf(tidemark.Denied,
			"this is for operators; send an API key with the scope %s", scope)
	}
	return nil
}
