package sqlite

import (
	"context"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

var _ storage.Documents = (*Store)(nil)

// Documents implements storage.Documents.
func (s *Store) Documents(
	ctx context.Context, kind, after string, limit int,
) ([]storage.Document, bool, error) {
	return page(ctx, s, `SELECT name, version, value FROM documents
		WHERE kind = ? AND name > ? ORDER BY name LIMIT ?`, limit, func(q *stmt) {
		q.string(1, kind)
		q.string(2, after)
		q.integer(3, int64(limit)+1)
	}, func(row *stmt) storage.Document {
		return storage.Document{
			Kind: kind, Name: row.stringAt(0), Version: uint64(row.integerAt(1)),
			Value: row.bytesAt(2),
		}
	})
}

const documentsByName = `SELECT d.version, d.value
	FROM json_each(?) AS j
	LEFT JOIN documents AS d ON d.kind = j.value ->> 0 AND d.name = j.value ->> 1`

// DocumentsOf implements storage.Documents.
func (s *Store) DocumentsOf(
	ctx context.Context, keys []storage.DocumentKey,
) ([]storage.Document, error) {
	if err := checkBatch(len(keys)); err != nil || len(keys) == 0 {
		return nil, err
	}
	list := []byte{'['}
	for i, key := range keys {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(tidemark.AppendString(append(list, '['), key.Kind), ',')
		list = append(tidemark.AppendString(list, key.Name), ']')
	}
	found := make([]storage.Document, 0, len(keys))
	err := s.read(ctx, func(c *conn) error {
		q, err := c.prepared(documentsByName)
		if err != nil {
			return err
		}
		q.string(1, string(append(list, ']')))
		return q.each(func(row *stmt) bool {
			d := storage.Document{Kind: keys[len(found)].Kind, Name: keys[len(found)].Name}
			if d.Version = uint64(row.integerAt(0)); d.Version > 0 {
				d.Value = row.bytesAt(1)
			}
			found = append(found, d)
			return true
		})
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// PutDocument implements storage.Documents.
func (s *Store) PutDocument(ctx context.Context, d storage.Document) (uint64, error) {
	version := d.Version + 1
	if d.Value == nil {
		version = 0
	}
	err := s.change(ctx, func(w *writer) error {
		if d.Value == nil && d.Version == 0 {
			return w.absent(&d)
		}
		//rule:told_in_order.compare-version-of-document-in-sqlite
		text := `UPDATE documents SET value = ?4, version = version + 1
			WHERE kind = ?1 AND name = ?2 AND version = ?3`
		switch {
		case d.Value == nil:
			text = `DELETE FROM documents WHERE kind = ?1 AND name = ?2 AND version = ?3`
		case d.Version == 0:
			text = `INSERT INTO documents (kind, name, version, value) VALUES (?1, ?2, ?3 + 1, ?4)
				ON CONFLICT (kind, name) DO NOTHING`
		}
		q, err := w.c.prepared(text)
		if err != nil {
			return err
		}
		q.string(1, d.Kind)
		q.string(2, d.Name)
		q.integer(3, int64(d.Version))
		if d.Value != nil {
			q.string(4, string(d.Value))
		}
		if err := q.run(); err != nil {
			return err
		}
		if w.c.Changes() == 0 {
			return storage.Outdated(d.Kind, d.Name)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return version, nil
}

// absent returns Conflict if there is such a document.
func (w *writer) absent(d *storage.Document) error {
	q, err := w.c.prepared(`SELECT 1 FROM documents WHERE kind = ? AND name = ?`)
	if err != nil {
		return err
	}
	q.string(1, d.Kind)
	q.string(2, d.Name)
	found, err := q.one(func(*stmt) {})
	if err == nil && found {
		err = storage.Outdated(d.Kind, d.Name)
	}
	return err
}
