package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/tidemark-im/tidemark"
)

// NewChat is a chat to create.
type NewChat struct {
	// ID identifies the creation of a group (`client_chat_id`): a repeated one returns the first
	// group. It is not the id of the chat. A direct chat needs none, since two users have one.
	ID   string
	Type tidemark.ChatType
	// Members are the other members.
	Members []tidemark.UserID
	Name    string
	// Metadata is a JSON object, or nil.
	Metadata json.RawMessage
}

// CreateChat creates a chat, or returns the one that exists. It repeats the call until the server
// answers or ctx ends. The error is a *tidemark.Error.
func (c *Client) CreateChat(ctx context.Context, n NewChat) (tidemark.Chat, error) {
	body := map[string]any{"type": n.Type, "member_ids": n.Members}
	if n.ID != "" {
		body["client_chat_id"] = n.ID
	}
	if n.Name != "" {
		body["name"] = n.Name
	}
	if n.Metadata != nil {
		body["metadata"] = n.Metadata
	}
	var w struct {
		ChatID      tidemark.ChatID      `json:"chat_id"`
		Type        tidemark.ChatType    `json:"type"`
		Name        string               `json:"name"`
		Metadata    json.RawMessage      `json:"metadata"`
		Version     uint64               `json:"version"`
		History     tidemark.HistoryMode `json:"history"`
		CreatedAt   time.Time            `json:"created_at"`
		Head        tidemark.Sequence    `json:"head_sequence"`
		Floor       tidemark.Sequence    `json:"floor_sequence"`
		MemberCount int                  `json:"member_count"`
		KeepDays    int                  `json:"keep_days"`
		Hold        bool                 `json:"hold"`
		Receipts    string               `json:"read_receipts"`
	}
	if err := c.repeat(ctx, http.MethodPost, "/chats", body, &w); err != nil {
		return tidemark.Chat{}, err
	}
	receipts := tidemark.ReceiptsPolicy(w.Receipts)
	if receipts == "optional" {
		receipts = tidemark.ReceiptsOptional
	}
	return tidemark.Chat{
		ID: w.ChatID, Type: w.Type, Name: w.Name, Metadata: given(w.Metadata), Version: w.Version,
		History: w.History, CreatedAt: w.CreatedAt, Head: w.Head, Floor: w.Floor,
		MemberCount: w.MemberCount,
		Policy:      tidemark.Policy{KeepDays: w.KeepDays, Hold: w.Hold, Receipts: receipts},
	}, nil
}

// Members returns the members of a chat, by user id. It repeats its calls as CreateChat does. The
// Intervals of the members are not known to clients.
func (c *Client) Members(ctx context.Context, chat tidemark.ChatID) ([]tidemark.Member, error) {
	var all []tidemark.Member
	for page := ""; ; {
		var w struct {
			Members []struct {
				UserID   tidemark.UserID `json:"user_id"`
				Role     tidemark.Role   `json:"role"`
				JoinedAt time.Time       `json:"joined_at"`
				Metadata json.RawMessage `json:"metadata"`
			} `json:"members"`
			Pagination struct {
				HasMore bool   `json:"has_more"`
				Next    string `json:"next_cursor"`
			} `json:"pagination"`
		}
		err := c.repeat(ctx, http.MethodGet, fmt.Sprintf("/chats/%s/members?limit=1000&cursor=%s",
			url.PathEscape(string(chat)), url.QueryEscape(page)), nil, &w)
		if err != nil {
			return nil, err
		}
		for _, m := range w.Members {
			all = append(all, tidemark.Member{
				UserID: m.UserID, Role: m.Role, JoinedAt: m.JoinedAt, Metadata: given(m.Metadata),
			})
		}
		if page = w.Pagination.Next; !w.Pagination.HasMore {
			return all, nil
		}
	}
}

// History returns the messages of a chat after a sequence, the lowest first, and whether there are
// more. It repeats its call as CreateChat does. It acknowledges nothing.
func (c *Client) History(
	ctx context.Context, chat tidemark.ChatID, after tidemark.Sequence, limit int,
) (messages []tidemark.Message, more bool, err error) {
	var p page
	err = c.repeat(ctx, http.MethodGet, fmt.Sprintf("/chats/%s/messages?after_sequence=%d&limit=%d",
		url.PathEscape(string(chat)), after, limit), nil, &p)
	return p.Messages, p.Pagination.HasMore, err
}
