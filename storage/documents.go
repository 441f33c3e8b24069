package storage

import (
	"bytes"
	"context"

	"github.com/tidemark-im/tidemark"
)

// Documents stores small JSON documents beside the chats: which outlets there are, which workers
// live, where a user has devices. Each kind holds few documents, or is read by names only.
type Documents interface {
	// Documents returns a page of the documents of a kind. The names ascend, and are above after
	// ("" for the first page). It sees every PutDocument that returned before the call. limit is at
	// least 1.
	Documents(ctx context.Context, kind, after string, limit int) (found []Document, more bool,
		err error)

	// DocumentsOf returns the documents of keys, in their order. One that does not exist has
	// Version 0 and a nil Value. It sees every PutDocument that returned before the call. The
	// documents need not be of one moment.
	DocumentsOf(ctx context.Context, keys []DocumentKey) ([]Document, error)

	// PutDocument stores or removes a document, if the stored one has the version that is named. It
	// returns the new version, which is above all that the document had since it was last absent.
	//
	// Conflict: the stored document has another version, and nothing changed. If an attempt of the
	// backend got no answer, the write may have happened all the same: the caller reads again.
	//
	// The caller has checked that kind and name are ids (tidemark.ValidID), and that the value has
	// at most MaxDocument bytes.
	PutDocument(ctx context.Context, d Document) (version uint64, err error)
}

// MaxDocument is the maximum number of bytes of a document's value.
const MaxDocument = 256 << 10

// DocumentKey names a document.
type DocumentKey struct{ Kind, Name string }

// Document is a value under a kind and a name.
type Document struct {
	Kind, Name string
	// Version is that of the stored document, and 0 if there is none.
	Version uint64
	// Value is a JSON value. In PutDocument, nil removes the document. Removing one that does not
	// exist, with Version 0, changes nothing and returns 0.
	Value []byte
}

// Outdated returns the Conflict of PutDocument.
func Outdated(kind, name string) error {
	return tidemark.Errorf(tidemark.Conflict,
		"the document %s of the kind %s was changed meanwhile; read it again", name, kind)
}

// maxEdits is how often EditDocument tries a change, when others change the same document.
const maxEdits = 20

// EditDocument changes a document in one step, and returns it as it is stored then. change gets the
// stored value, nil if there is none, and returns the next one, or nil to remove the document. It
// may run several times. A value that is stored already is not written.
//
// Errors: that of change, after which nothing has changed; those of PutDocument, but Unavailable in
// place of Conflict.
func EditDocument(
	ctx context.Context, docs Documents, key DocumentKey,
	change func(value []byte) (next []byte, err error),
) (d Document, wrote bool, err error) {
	for range maxEdits {
		found, err := docs.DocumentsOf(ctx, []DocumentKey{key})
		if err != nil {
			return Document{}, false, err
		}
		d := found[0]
		next, err := change(d.Value)
		if err != nil {
			return Document{}, false, err
		}
		if bytes.Equal(next, d.Value) {
			return d, false, nil
		}
		d.Value = next
		d.Version, err = docs.PutDocument(ctx, d)
		if tidemark.CodeOf(err) != tidemark.Conflict {
			return d, err == nil, err
		}
	}
	return Document{}, false, tidemark.Errorf(tidemark.Unavailable,
		"the document %s of the kind %s changes too quickly; try again", key.Name, key.Kind)
}
