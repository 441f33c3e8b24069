package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/server/bus"
	"github.com/tidemark-im/tidemark/server/internal/chat"
	"github.com/tidemark-im/tidemark/server/internal/delivery"
	"github.com/tidemark-im/tidemark/server/internal/pagetoken"
	"github.com/tidemark-im/tidemark/server/registry"
	"github.com/tidemark-im/tidemark/storage"
)

// Caller names the user of a call, and says whether a backend calls for them.
type Caller struct {
	// User is "" if a backend calls for itself. Then it may manage chats, but reads no user's data.
	User tidemark.UserID
	// Backend reports that the caller showed an API key. A backend may do what an owner may.
	Backend bool
	// Moderates reports that messages of the caller are not reviewed before they are stored.
	Moderates bool
}

// noUser reports that a backend calls for itself.
func (c Caller) noUser() bool { return c.Backend && c.User == "" }

// CreateChatRequest describes a chat to be created.
type CreateChatRequest struct {
	// ChatID is the chat's id. ClientChatID is an idempotency key of the caller, from which the
	// server makes the id. At most one of them is set. Without either, a repeated request makes a
	// second group; a direct chat needs neither, because its two members identify it.
	ChatID       tidemark.ChatID
	ClientChatID string
	Type         tidemark.ChatType
	Name         string
	// Metadata is a JSON object, or nil. An empty one counts as nil.
	Metadata json.RawMessage
	// History is the chat's history mode. If it is empty, tidemark.HistoryFull is used.
	History tidemark.HistoryMode
	// MemberIDs are the other members. The caller's user is added. A backend without a user names
	// all members.
	MemberIDs []tidemark.UserID
}

// ChatView is a chat as one of its members sees it.
type ChatView struct {
	tidemark.Chat
	// Role is the role of the caller's user. It is empty if the caller is a backend without a user,
	// or its user is no member.
	Role tidemark.Role
	// State holds the caller's own raw watermarks. Both are 0 if they have none. If a backend calls
	// without a user, its UserID is "", and Unread, Last and Peer are zero.
	State  tidemark.DeliveryState
	Unread storage.Unread
	// Last is the last message. It is nil if the chat is empty, or if the caller may not see it.
	Last *tidemark.Message
	// Peer is the state of the other member of a direct chat as the caller's user sees it
	// (tidemark.DeliveryState.ShownTo), and nil for a group.
	Peer *tidemark.DeliveryState
}

// ChatPage is a page of a user's chats. NextCursor is empty on the last page.
type ChatPage struct {
	Chats      []ChatView
	NextCursor string
}

// CreateChat creates a chat whose owner is the caller. A group that a backend creates without a
// user has no owner. A pair has at most one direct chat: if theirs exists, CreateChat returns it
// with created false. It does the same for a group that an equal request of the same caller has
// created. All backends without a user count as one caller.
//
// Errors: Invalid (a bad id, type, name or number of members), Conflict (another request has used
// the id), NotMember (an equal request created the group, and the caller has left it), Denied (only
// backends create chats, or a block stands between the user and another member).
func (s *Server) CreateChat(
	ctx context.Context, c Caller, r CreateChatRequest,
) (view ChatView, created bool, err error) {
	//rule:caller_does_only_what_they_may.only-backends-open-chats
	if s.cfg.OnlyBackendsOpen && !c.Backend {
		return ChatView{}, false, tidemark.Errorf(tidemark.Denied,
			"on this server, only a backend creates chats; ask yours to create it")
	}
	n, err := s.newChat(c, r)
	if err != nil {
		return ChatView{}, false, err
	}
	if err := s.calls.begin(); err != nil {
		return ChatView{}, false, err
	}
	defer s.calls.end()
	if err := s.mayGather(ctx, c, n); err != nil {
		return ChatView{}, false, err
	}
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	chat, created, err := s.storage.CreateChat(ctx, n)
	if tidemark.CodeOf(err) == tidemark.Conflict {
		chat, err = s.repeated(ctx, n, err)
	}
	if tidemark.CodeOf(err) == tidemark.Conflict {
		param := "chat_id"
		if r.ChatID == "" {
			param = "client_chat_id"
		}
		err = &tidemark.Error{
			Code: tidemark.Conflict, Detail: tidemark.DetailOf(err), Param: param, Err: err,
		}
	}
	if err != nil {
		return ChatView{}, false, err
	}
	if created {
		// Each member gets only their own membership: the list of all others is of no use to them.
		all := make([]delivery.Announcement, len(n.Members))
		for i, member := range n.Members {
			change := tidemark.MembershipChange{
				ChatID: chat.ID,
				UserID: member,
				Change: tidemark.Added,
				Role:   tidemark.Ordinary,
			}
			if member == c.User {
				change.Role = tidemark.Owner
			}
			all[i] = delivery.Announcement{To: n.Members[i : i+1], Event: bus.Event{
				Membership: &bus.Membership{
					Changes: []tidemark.MembershipChange{change},
					Version: chat.MembersVersion,
					Members: len(n.Members),
				},
			}}
		}
		s.delivery.Publish(ctx, all, false)
		if c.noUser() {
			return ChatView{Chat: chat}, true, nil
		}
		view := ChatView{
			Chat: chat, Role: tidemark.Owner,
			State: tidemark.DeliveryState{UserID: c.User, ChatID: chat.ID},
		}
		for _, member := range n.Members {
			if chat.Type == tidemark.Direct && member != c.User {
				view.Peer = &tidemark.DeliveryState{UserID: member, ChatID: chat.ID}
			}
		}
		return view, true, nil
	}
	view, err = s.Chat(ctx, c, chat.ID)
	return view, false, err
}

// repeated returns the chat that has the id of n, if an equal request created it. Otherwise it
// returns the conflict.
func (s *Server) repeated(
	ctx context.Context, n storage.NewChat, conflict error,
) (tidemark.Chat, error) {
	chat, err := s.storage.Chat(ctx, n.ID)
	if err != nil {
		return tidemark.Chat{}, err
	}
	//rule:post_retry_safe.equal-request-only
	if chat.Creation != n.Creation {
		return tidemark.Chat{}, conflict
	}
	return chat, nil
}

// newChat completes and checks a request.
func (s *Server) newChat(c Caller, r CreateChatRequest) (storage.NewChat, error) {
	n := storage.NewChat{
		ID: r.ChatID, Type: r.Type, Name: r.Name, Metadata: r.Metadata, History: r.History,
		CreatedAt: s.now(), Creator: c.User,
	}
	if r.ClientChatID != "" {
		if err := tidemark.CheckID("client_chat_id", r.ClientChatID); err != nil {
			return n, err
		}
	}
	//rule:post_retry_safe.id-of-key-is-reserved
	if isDigest(r.ChatID) {
		return n, tidemark.BadParam(tidemark.Invalid, "chat_id",
			"must not be %s and %d characters of a-z 2-7, as the ids that the server makes are",
			digestPrefix, digestLength)
	}
	switch {
	case r.ChatID != "" && r.ClientChatID != "":
		return n, tidemark.Errorf(tidemark.Invalid,
			"chat_id and client_chat_id exclude each other; give one of them")
	case r.ChatID == "" && r.ClientChatID == "":
		n.ID = digestID(rand.Text())
	case r.ChatID == "":
		//rule:post_retry_safe.id-of-key
		n.ID = digestID(string(c.User), r.ClientChatID)
	}
	if emptyObject(n.Metadata) {
		n.Metadata = nil
	}
	if n.History == "" {
		n.History = tidemark.HistoryFull
	}
	named := r.MemberIDs
	//rule:caller_does_only_what_they_may.creator-is-a-member
	if !c.noUser() {
		named = append([]tidemark.UserID{c.User}, named...)
	}
	members, err := distinct("member_ids", named)
	if err != nil {
		return n, err
	}
	if err := s.erased(members...); err != nil {
		return n, err
	}
	n.Members = members
	n.Creation = creationOf(n)
	return n, n.Check()
}

// digestPrefix begins the ids that the server makes, and a digest follows. Nobody else may use such
// an id: that of a client_chat_id can be computed, so anyone could take it before its owner does.
const (
	digestPrefix = "chat_"
	digestLength = 26
)

// isDigest reports whether an id has the form of those that the server makes.
func isDigest(id tidemark.ChatID) bool {
	rest, ours := strings.CutPrefix(string(id), digestPrefix)
	return ours && len(rest) == digestLength &&
		strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz234567") == ""
}

// digestID returns a chat id that is made from texts, none of which contains a NUL.
func digestID(texts ...string) tidemark.ChatID {
	return tidemark.ChatID(digestPrefix + digest(texts))
}

// creationOf returns the value of tidemark.Chat.Creation: a digest of the request.
func creationOf(n storage.NewChat) string {
	//rule:post_retry_safe.metadata-belong-to-request
	texts := []string{
		string(n.Creator), string(n.Type), string(n.History), n.Name, string(n.Metadata),
	}
	for _, member := range n.Members {
		texts = append(texts, string(member))
	}
	return digest(texts)
}

// digest returns 128 bits of a hash as 26 letters and digits.
func digest(texts []string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).
		EncodeToString(sum[:16]))
}

// distinct checks user ids and returns them in ascending order without duplicates. field names them
// in the error.
func distinct(field string, users []tidemark.UserID) ([]tidemark.UserID, error) {
	for _, user := range users {
		if err := tidemark.CheckID(field, user); err != nil {
			return nil, err
		}
	}
	users = slices.Clone(users)
	slices.Sort(users)
	return slices.Compact(users), nil
}

// Chats returns a page of the user's chats, latest activity first. limit is at least 1.
func (s *Server) Chats(
	ctx context.Context, user tidemark.UserID, limit int, cursor string,
) (ChatPage, error) {
	activity, after, err := pagetoken.DecodeActivity(cursor)
	if err != nil {
		return ChatPage{}, err
	}
	found, more, err := s.storage.ChatsOf(ctx, user, storage.ChatsPage{
		Limit:    limit,
		Activity: activity,
		ChatID:   after,
	})
	if err != nil {
		return ChatPage{}, err
	}
	page := ChatPage{Chats: make([]ChatView, len(found))}
	for i, c := range found {
		page.Chats[i] = ChatView{
			Chat: c.Chat, Role: c.Role, State: c.State, Unread: c.Unread, Last: c.Last,
		}
	}
	if more && len(found) > 0 {
		last := found[len(found)-1]
		page.NextCursor = pagetoken.EncodeActivity(last.Activity, last.Chat.ID)
	}
	if err := s.skipHidden(ctx, user, page.Chats); err != nil {
		return ChatPage{}, err
	}
	return page, s.setPeers(ctx, user, page.Chats)
}

// setPeers sets Peer in all direct chats, by at most one read of rosters and one of states.
func (s *Server) setPeers(ctx context.Context, user tidemark.UserID, views []ChatView) error {
	var ids []tidemark.ChatID
	byID := make(map[tidemark.ChatID]*ChatView)
	for i := range views {
		if v := &views[i]; v.Type == tidemark.Direct {
			ids, byID[v.ID] = append(ids, v.ID), v
		}
	}
	rosters, err := s.chats.Rosters(ctx, ids)
	if err != nil {
		return err
	}
	var keys []storage.StateKey
	for _, roster := range rosters {
		key, there := peerOf(roster, user)
		switch {
		case !there:
		//rule:blocked_is_closed.peer-says-nothing
		case byID[key.Chat].Chat.State.Closed() || roster.State.Closed():
			byID[key.Chat].Peer = &tidemark.DeliveryState{UserID: key.User, ChatID: key.Chat}
		default:
			keys = append(keys, key, storage.StateKey{User: user, Chat: key.Chat})
		}
	}
	if len(keys) == 0 {
		return nil
	}
	states, err := s.storage.States(ctx, keys)
	for i := 0; i+1 < len(states); i += 2 {
		peer := states[i].ShownTo(states[i+1])
		byID[peer.ChatID].Peer = &peer
	}
	return err
}

// peerOf names the state of the other member of a direct chat. There is none if the chat was
// deleted meanwhile, or if the other one was erased.
func peerOf(roster *chat.Roster, user tidemark.UserID) (key storage.StateKey, there bool) {
	if roster == nil {
		return storage.StateKey{}, false
	}
	for _, peer := range roster.Users {
		if peer != user {
			return storage.StateKey{User: peer, Chat: roster.ChatID}, true
		}
	}
	return storage.StateKey{}, false
}

// Chat returns one chat. A backend without a user gets any chat, with the chat's own fields only.
//
// Errors: NotFound, NotMember.
func (s *Server) Chat(ctx context.Context, c Caller, chat tidemark.ChatID) (ChatView, error) {
	//rule:caller_does_only_what_they_may.backends-see-every-chat
	if c.noUser() {
		return s.view(ctx, c, tidemark.Member{}, chat)
	}
	_, m, err := s.chats.Member(ctx, c.User, chat)
	if err != nil {
		return ChatView{}, err
	}
	return s.view(ctx, c, m, chat)
}

// view returns what a member sees of a chat. To a backend without a user it returns the chat's own
// fields.
func (s *Server) view(
	ctx context.Context, c Caller, m tidemark.Member, id tidemark.ChatID,
) (ChatView, error) {
	chat, err := s.storage.Chat(ctx, id)
	if err == nil {
		err = exists(c, id, chat.State)
	}
	if err != nil || c.noUser() {
		return ChatView{Chat: chat}, err
	}
	keys := []storage.StateKey{{User: c.User, Chat: id}}
	if chat.Type == tidemark.Direct {
		roster, err := s.chats.Roster(ctx, id, 0)
		if err != nil {
			return ChatView{}, err
		}
		if key, there := peerOf(roster, c.User); there {
			keys = append(keys, key)
		}
	}
	states, err := s.storage.States(ctx, keys)
	if err != nil {
		return ChatView{}, err
	}
	counts, err := s.storage.Unread(ctx, keys[:1])
	if err != nil {
		return ChatView{}, err
	}
	view := ChatView{Chat: chat, Role: m.Role, State: states[0], Unread: counts[0]}
	if len(states) > 1 {
		peer := states[1].ShownTo(states[0])
		if chat.State.Closed() {
			//rule:blocked_is_closed.peer-says-nothing-in-a-view
			peer = tidemark.DeliveryState{UserID: states[1].UserID, ChatID: id}
		}
		view.Peer = &peer
	}
	if chat.Head == 0 {
		return view, nil
	}
	last, err := s.messages(ctx, storage.Range{
		Chat: id, Before: chat.Head + 1, Limit: 1, Bare: true,
	})
	if err != nil {
		return ChatView{}, err
	}
	//rule:nothing_outside_membership.last-message-to-members-only
	if len(last) == 1 && m.Intervals.Contains(last[0].Sequence) {
		view.Last = &last[0]
	}
	views := []ChatView{view}
	err = s.skipHidden(ctx, c.User, views)
	return views[0], err
}

// ChatChange says what to change of a chat. What is nil stays as it is. Metadata takes the place of
// the whole object; an empty object removes it.
type ChatChange = storage.ChatChange

// UpdateChat changes the name or the metadata of a group, for which owners, admins and backends may
// ask. For how long a chat is kept, whether it is on hold, and who sees what its members read, only
// backends change, also of a direct chat. The members' sessions are notified, also of a change that
// changes nothing: an earlier attempt may have changed it and got no answer.
//
// Who sees what the members read decides about what is stored after the call has returned, on every
// node, like a setting of SetReceipts.
//
// Errors: those of CheckChatName, CheckMetadata, CheckKeepDays and CheckReceiptsPolicy, NotFound,
// NotMember, Denied, Unavailable (the policy of receipts may hold for some members; repeat the
// call).
func (s *Server) UpdateChat(
	ctx context.Context, c Caller, id tidemark.ChatID, change ChatChange,
) (ChatView, error) {
	change, err := checkChange(change)
	if err != nil {
		return ChatView{}, err
	}
	if err := s.calls.begin(); err != nil {
		return ChatView{}, err
	}
	defer s.calls.end()
	m, err := s.mayChange(ctx, c, id, change)
	if err != nil {
		return ChatView{}, err
	}
	ctx, cancel := delivery.Detach(ctx)
	defer cancel()
	if change.Receipts != nil {
		// As in SetReceipts: what was read on this node before is written first.
		//rule:shown_within_real.earlier-reads-before-the-policy
		s.receipts.Flush(ctx)
	}
	chat, err := s.storage.UpdateChat(ctx, id, change)
	if err != nil {
		return ChatView{}, concealed(c, id, err)
	}
	s.announceUpdate(ctx, chat, change.Receipts != nil)
	view, err := s.view(ctx, c, m, id)
	return view, afterwards(err)
}

// afterwards returns the error of a call whose effect has happened, and whose answer cannot be
// read. It is no refusal, which would say that nothing has happened.
func afterwards(err error) error {
	switch tidemark.CodeOf(err) {
	case "", tidemark.Unavailable, tidemark.Internal:
		return err
	}
	//rule:audited_before_done.no-refusal-after-the-effect
	return tidemark.Wrap(tidemark.Unavailable, err,
		"the change was made, but the answer cannot be read; repeat the request")
}

// mayChange returns the caller's membership if they may make a change of a chat.
//
// Errors: NotFound, NotMember, Denied, Unavailable (the chat is being imported).
func (s *Server) mayChange(
	ctx context.Context, c Caller, id tidemark.ChatID, change ChatChange,
) (m tidemark.Member, err error) {
	//rule:caller_does_only_what_they_may.backends-change-policies
	if param := policyIn(change); !c.Backend && param != "" {
		if _, m, err = s.chats.Member(ctx, c.User, id); err == nil {
			err = tidemark.BadParam(tidemark.Denied, param, "can be changed only by a backend")
		}
		return m, err
	}
	if !c.Backend || change.Name != nil || change.Metadata != nil {
		if _, m, err = s.mayManage(ctx, c, id); err != nil {
			return m, err
		}
	} else {
		roster, err := s.chats.Roster(ctx, id, 0)
		if err == nil {
			err = exists(c, id, roster.State)
		}
		if err != nil {
			return m, err
		}
		m, _ = roster.Member(c.User)
	}
	return m, err
}

// policyIn names what a change has of a policy, or "".
func policyIn(change ChatChange) string {
	switch {
	case change.KeepDays != nil:
		return "keep_days"
	case change.Hold != nil:
		return "hold"
	//rule:shown_within_real.backends-decide-for-a-chat
	case change.Receipts != nil:
		return "read_receipts"
	}
	return ""
}

// checkChange returns a change as storage takes it.
func checkChange(change ChatChange) (ChatChange, error) {
	if change.Name != nil {
		if err := tidemark.CheckChatName(*change.Name); err != nil {
			return change, err
		}
	}
	if err := tidemark.CheckMetadata(change.Metadata); err != nil {
		return change, err
	}
	if emptyObject(change.Metadata) {
		change.Metadata = json.RawMessage{}
	}
	if change.KeepDays != nil {
		if err := tidemark.CheckKeepDays(*change.KeepDays); err != nil {
			return change, err
		}
	}
	if change.Receipts != nil {
		return change, tidemark.CheckReceiptsPolicy(*change.Receipts)
	}
	return change, nil
}

// emptyObject reports whether raw is a JSON object without fields. nil is none.
func emptyObject(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) >= 2 && len(bytes.TrimSpace(raw[1:len(raw)-1])) == 0
}

// announceUpdate notifies the sessions of a chat's members that the chat changed, and perhaps who
// sees what its members read. It is a hint: who misses it sees the version in their list of chats.
func (s *Server) announceUpdate(ctx context.Context, chat tidemark.Chat, receipts bool) {
	// Who joined before the change may have read the policy before it.
	//rule:shown_within_real.tell-all-who-joined-before
	roster, err := s.chats.Roster(ctx, chat.ID, chat.MembersVersion)
	if err != nil {
		s.log.Warn("a change of a chat is not announced, because its members cannot be read",
			"chat", chat.ID, "error", err)
		return
	}
	event := bus.Event{Update: &bus.Update{
		ChatUpdate:     tidemark.ChatUpdate{ChatID: chat.ID, Version: chat.Version},
		MembersVersion: roster.Version, Receipts: receipts,
	}}
	s.delivery.Publish(ctx, []delivery.Announcement{{To: roster.Users, Event: event}}, false)
}

// receiveUpdate passes the change of a chat to sessions. It skips users who are known to have left.
func (s *Server) receiveUpdate(to []registry.Lease, e *bus.Update) {
	chat := s.chats.Chat(e.ChatID)
	for _, sess := range s.table.Held(nil, to) {
		if sess == nil {
			continue
		}
		//rule:nothing_outside_membership.updates-for-members-only
		if member, _ := chat.MayKnow(sess.User(), e.MembersVersion); member {
			sess.ChatUpdated(e.ChatUpdate)
			if e.Receipts {
				sess.PolicyChanged(e.ChatID)
			}
		}
	}
}
