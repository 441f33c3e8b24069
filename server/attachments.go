package server

import (
	"context"
	"slices"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// pinFiles keeps the files that a draft names, before the message is stored (R_PIN). So no stored
// message names a file that is later removed as an orphan. If the send then fails, the file is
// removed a day later, unless another send has named it.
func (s *Server) pinFiles(ctx context.Context, d *tidemark.Draft) error {
	named, err := tidemark.FilesOf(d.Attachments)
	if err != nil || named == nil {
		return err
	}
	refused := s.mayNameFiles(ctx, d, named)
	if refused == nil || tidemark.CodeOf(refused) == tidemark.Unavailable {
		return refused
	}
	// The first send has pinned the files of a message that is stored. Meanwhile its sender may
	// have left the chat of a source.
	appended, found, err := s.storage.Sent(ctx, storage.SendKeyOf(d))
	switch {
	case err != nil:
		return err
	//rule:send_idempotent.stored-message-needs-no-pin
	case found && appended.Message.SameAs(d):
		return nil
	}
	return refused
}

// mayNameFiles pins the files that a draft names, or returns why it may not name them.
func (s *Server) mayNameFiles(ctx context.Context, d *tidemark.Draft, named []string) error {
	if s.cfg.Attachments == nil {
		i := slices.IndexFunc(named, func(id string) bool { return id != "" })
		return tidemark.BadParam(tidemark.Invalid, tidemark.FileParam(i),
			"is reserved for files that the server keeps, and this server keeps none; use another "+
				"name")
	}
	// Strangers and readers pin nothing.
	_, m, err := s.chats.Member(ctx, d.SenderID, d.ChatID)
	if err != nil {
		return err
	}
	//rule:caller_does_only_what_they_may.readers-pin-no-files
	if !m.Role.MaySend() {
		return storage.NotSender(d.ChatID, d.SenderID, true)
	}
	var seen []string
	sources := d.Sources
	if d.Kind == tidemark.KindEdit {
		// An edit may keep the files of what it edits.
		sources = append(slices.Clone(sources),
			tidemark.MessageRef{ChatID: d.ChatID, Sequence: d.Relation.Sequence})
	}
	for _, source := range sources {
		//rule:no_file_outside_membership.sources-that-the-sender-sees
		message, err := s.Message(ctx, d.SenderID, source)
		if err != nil {
			return err
		}
		files, err := tidemark.FilesOf(message.Attachments)
		if err != nil {
			return err
		}
		seen = append(seen, files...)
	}
	slices.Sort(named)
	named = slices.DeleteFunc(slices.Compact(named), func(id string) bool { return id == "" })
	//rule:R_PIN.pin-before-append
	return s.cfg.Attachments.Pin(ctx, storage.SendKeyOf(d), named, seen)
}
