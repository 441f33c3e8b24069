// Package importtest is for tests of sources: it shows records as texts, and imports them.
package importtest

import (
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark/importer"
	"github.com/tidemark-im/tidemark/storage/memory"
)

// Lines returns the records of a source as texts. The source must not fail.
func Lines(t *testing.T, records iter.Seq2[importer.Record, error]) (all []string) {
	t.Helper()
	for r, err := range records {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, line(r))
	}
	return all
}

// line returns a record as a text.
func line(r importer.Record) string {
	switch r := r.(type) {
	case importer.Chat:
		return fmt.Sprintf("chat %s %s %q %s %s", r.ID, r.Type, r.Name, r.Members,
			r.CreatedAt.UTC().Format(time.RFC3339))
	case importer.Member:
		if r.Left {
			return r.User + " leaves"
		}
		return fmt.Sprintf("%s joins as %q", r.User, r.Role)
	case importer.Message:
		if r.Lack != "" {
			return fmt.Sprintf("%s of %q is %s", r.ID, r.Author, r.Lack)
		}
		text := fmt.Sprintf("%s %s: %s", r.ID, r.Author, r.Says.Content)
		if r.Says.Kind != "" {
			text += fmt.Sprintf(" (%s)", r.Says.Kind)
		}
		if len(r.Mentioned) > 0 || r.Says.Mentions.All {
			text += fmt.Sprintf(" mentions %s %t", r.Mentioned, r.Says.Mentions.All)
		}
		if r.Says.Attachments != nil {
			text += fmt.Sprintf(" has %s", r.Says.Attachments)
		}
		if r.Says.Metadata != nil {
			text += fmt.Sprintf(" with %s", r.Says.Metadata)
		}
		return text
	case importer.Read:
		return fmt.Sprintf("%s has read %d", r.User, r.Position)
	}
	return "end"
}

// Import imports records into an empty store. They must fit.
func Import(
	t *testing.T, format string, records iter.Seq2[importer.Record, error],
) (*memory.Store, importer.Report) {
	t.Helper()
	store := memory.New()
	i := importer.New(importer.Config{Store: store, Format: format, Clock: time.Now})
	if err := i.Run(t.Context(), records); err != nil {
		t.Fatalf("the import ends with %v", err)
	}
	return store, i.Report()
}
