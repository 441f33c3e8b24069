package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/tidemark-im/tidemark/storage"
)

var _ storage.Documents = (*Store)(nil)

const documentsOf = `SELECT name, version, value FROM documents
	WHERE kind = $1 AND name > $2 ORDER BY name LIMIT $3`

// Documents implements storage.Documents.
func (s *Store) Documents(
	ctx context.Context, kind, after string, limit int,
) ([]storage.Document, bool, error) {
	return list(ctx, s, documentsOf, limit, []any{kind, after, int64(limit) + 1},
		func(row pgx.Rows) (storage.Document, error) {
			d := storage.Document{Kind: kind}
			var version int64
			err := row.Scan(&d.Name, &version, &d.Value)
			d.Version = uint64(version)
			return d, err
		})
}

const documentsByName = `SELECT k.no, d.version, d.value
	FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS k (kind, name, no)
	CROSS JOIN LATERAL (SELECT version, value FROM documents
		WHERE kind = k.kind AND name = k.name LIMIT 1) AS d`

// DocumentsOf implements storage.Documents.
func (s *Store) DocumentsOf(
	ctx context.Context, keys []storage.DocumentKey,
) ([]storage.Document, error) {
	return through(ctx, s, s.documents, keys)
}

func readDocuments(
	ctx context.Context, c *conn, keys []storage.DocumentKey,
) ([]storage.Document, error) {
	found := make([]storage.Document, len(keys))
	kinds, names := make([]string, len(keys)), make([]string, len(keys))
	for i, key := range keys {
		kinds[i], names[i] = key.Kind, key.Name
		found[i] = storage.Document{Kind: key.Kind, Name: key.Name}
	}
	return found, c.each(ctx, documentsByName, []any{kinds, names}, func(row pgx.Rows) error {
		var no, version int64
		var value []byte
		if err := row.Scan(&no, &version, &value); err != nil {
			return err
		}
		found[no-1].Version, found[no-1].Value = uint64(version), value
		return nil
	})
}

const (
	insertDocument = `INSERT INTO documents (kind, name, version, value) VALUES ($1, $2, $3 + 1, $4)
		ON CONFLICT (kind, name) DO NOTHING`
	//rule:told_in_order.compare-version-of-document-in-postgres
	updateDocument = `UPDATE documents SET value = $4, version = version + 1
		WHERE kind = $1 AND name = $2 AND version = $3`
	deleteDocument = `DELETE FROM documents WHERE kind = $1 AND name = $2 AND version = $3`
	findDocument   = `SELECT 1 FROM documents WHERE kind = $1 AND name = $2`
)

// PutDocument implements storage.Documents.
func (s *Store) PutDocument(ctx context.Context, d storage.Document) (uint64, error) {
	text, parameters := updateDocument, []any{d.Kind, d.Name, int64(d.Version)}
	version, absent := d.Version+1, false
	switch {
	case d.Value == nil && d.Version == 0:
		text, parameters, version, absent = findDocument, parameters[:2], 0, true
	case d.Value == nil:
		text, version = deleteDocument, 0
	case d.Version == 0:
		text, parameters = insertDocument, append(parameters, string(d.Value))
	default:
		parameters = append(parameters, string(d.Value))
	}
	err := s.change(ctx, func(ctx context.Context, c *conn) error {
		done, err := c.Exec(ctx, text, parameters...)
		if err == nil && (done.RowsAffected() == 0) != absent {
			err = storage.Outdated(d.Kind, d.Name)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return version, nil
}
