package tidemark

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// MessageRef names a message by its place.
type MessageRef struct {
	ChatID   ChatID
	Sequence Sequence
}

// fileKey is the key of an attachment that names a file which the server keeps.
const fileKey = "s3_ref"

// FilesOf returns the files that attachments name by `s3_ref`: for each attachment the id of its
// file, or "". It returns nil if none names a file. It decides both what a sender may send and what
// a reader may fetch, so that the two cannot differ.
//
// Errors: Invalid (no array of objects, or an s3_ref that is no id).
func FilesOf(attachments json.RawMessage) ([]string, error) {
	// Most messages name no file, and need no parsing. A backslash may hide the key.
	if !bytes.Contains(attachments, []byte(fileKey)) && !bytes.ContainsRune(attachments, '\\') {
		return nil, nil
	}
	var all []map[string]json.RawMessage
	if err := json.Unmarshal(attachments, &all); err != nil {
		return nil, BadParam(Invalid, "attachments", "must be a JSON array of objects")
	}
	files, some := make([]string, len(all)), false
	for i, attachment := range all {
		raw := attachment[fileKey]
		if raw == nil || string(raw) == "null" {
			continue
		}
		param := FileParam(i)
		if err := json.Unmarshal(raw, &files[i]); err != nil {
			return nil, BadParam(Invalid, param, "must be a string")
		}
		if err := CheckID(param, files[i]); err != nil {
			return nil, err
		}
		some = true
	}
	if !some {
		return nil, nil
	}
	return files, nil
}

// FileParam returns the name of the s3_ref of an attachment, for errors.
func FileParam(i int) string { return fmt.Sprintf("attachments[%d].%s", i, fileKey) }
