package outlets

import (
	"encoding/json"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach"
	"github.com/tidemark-im/tidemark/reach/outlet"
)

// view is an outlet as the API has it.
type view struct {
	ID   reach.OutletID `json:"outlet_id"`
	Type string         `json:"type"`
	URL  string         `json:"url"`
	// Events are empty for all.
	Events    []outlet.Type `json:"events"`
	Content   string        `json:"content"`
	Batch     bool          `json:"batch"`
	State     reach.State   `json:"state"`
	Reason    *string       `json:"reason"`
	Replaying bool          `json:"replaying"`
	CreatedAt string        `json:"created_at"`
	// Secret is nil except in the answers that make one, and Waiting except in that of get.
	Secret  *string `json:"secret"`
	Waiting *int    `json:"waiting_chats"`
	Node    figures `json:"this_node"`
}

// figures are those of the node that answers.
type figures struct {
	Accepted     uint64  `json:"accepted_total"`
	Refused      uint64  `json:"refused_total"`
	Deferred     uint64  `json:"deferred_total"`
	Parked       uint64  `json:"parked_total"`
	FailingSince *string `json:"first_failure_at"`
}

func newView(info reach.Info, secret string) view {
	v := view{
		ID: info.ID, Type: info.Kind, URL: info.URL, Events: info.Events, Content: info.Content,
		Batch: info.Batch, State: info.State, Replaying: info.Walk != nil,
		CreatedAt: info.CreatedAt.Format(tidemark.TimeLayout),
		Node: figures{
			Accepted: info.Accepted, Refused: info.Refused, Deferred: info.Deferred,
			Parked: info.Parked, FailingSince: timeOrNil(info.FailingSince),
		},
	}
	if v.Events == nil {
		v.Events = []outlet.Type{}
	}
	if secret != "" {
		v.Secret = &secret
	}
	if info.Reason != "" {
		v.Reason = &info.Reason
	}
	return v
}

// timeOrNil returns the text of a time, or nil if it is zero.
func timeOrNil(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	text := t.UTC().Format(tidemark.TimeLayout)
	return &text
}

// failureView is a refused delivery as the API has it.
type failureView struct {
	At     string           `json:"refused_at"`
	Event  string           `json:"event_id"`
	Type   outlet.Type      `json:"type"`
	Chat   *tidemark.ChatID `json:"chat_id"`
	Status *int             `json:"status"`
	Detail string           `json:"detail"`
}

// chatOrNil returns nil for "", which is the chat of events about outlets.
func chatOrNil(id tidemark.ChatID) *tidemark.ChatID {
	if id == "" {
		return nil
	}
	return &id
}

// parkedView is a parked event as the API has it.
type parkedView struct {
	Event  string           `json:"event_id"`
	Type   outlet.Type      `json:"type"`
	Chat   *tidemark.ChatID `json:"chat_id"`
	Time   string           `json:"happened_at"`
	Data   json.RawMessage  `json:"data"`
	At     string           `json:"parked_at"`
	Status *int             `json:"status"`
	Detail string           `json:"detail"`
}

// parkedPage is a page of parked events.
type parkedPage struct {
	Parked     []parkedView `json:"parked"`
	Pagination struct {
		HasMore bool    `json:"has_more"`
		Next    *string `json:"next_cursor"`
	} `json:"pagination"`
}

func newParkedView(p *reach.Parked) parkedView {
	return parkedView{
		Event: p.Event.ID, Type: p.Event.Type, Chat: chatOrNil(p.Event.Chat),
		Time: p.Event.Time.UTC().Format(tidemark.TimeLayout), Data: p.Event.Data,
		At: p.At.UTC().Format(tidemark.TimeLayout), Status: orNil(p.Status), Detail: p.Detail,
	}
}
