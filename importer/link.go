package importer

import (
	"encoding/json"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// Link is an attachment whose bytes stay where they are.
type Link struct {
	URL         string `json:"url,omitempty"`
	Name        string `json:"name,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Size        uint64 `json:"size,omitempty"`
	// Ref names the bytes if they have no URL.
	Ref string `json:"source_ref,omitempty"`
}

// Links returns the attachments for links. It leaves out those that name no bytes, or whose URL is
// none of HTTP: clients must not get one that runs a script. It returns nil if none is left, or if
// they do not fit into a message.
func Links(all []Link) json.RawMessage {
	var kept []Link
	for _, l := range all {
		if l.web() || l.URL == "" && l.Ref != "" {
			kept = append(kept, l)
		}
	}
	raw, err := json.Marshal(kept)
	if err != nil || len(kept) == 0 || len(kept) > tidemark.MaxAttachments ||
		len(raw) > tidemark.MaxAttachmentBytes {
		return nil
	}
	return raw
}

// web reports whether the link has a URL of HTTP, or one without a host.
func (l *Link) web() bool {
	url := strings.ToLower(l.URL)
	for _, scheme := range []string{"https://", "http://", "/"} {
		if strings.HasPrefix(url, scheme) {
			return true
		}
	}
	return false
}

// Bytes returns a size as a Link has it.
func Bytes(size float64) uint64 { return uint64(max(0, min(size, 1<<53-1))) }

// Metadata returns a JSON object with one field, if it can be the metadata of a message, or else
// nil.
func Metadata(field string, value any) json.RawMessage {
	raw, err := json.Marshal(map[string]any{field: value})
	if err != nil || !fits(raw) {
		return nil
	}
	return raw
}

// fits reports whether a JSON object can be the metadata of a message.
func fits(metadata json.RawMessage) bool {
	return tidemark.CheckMetadata(metadata) == nil && checkValue("metadata", metadata) == nil
}
