package memory

import (
	"context"
	"maps"
	"slices"

	"github.com/tidemark-im/tidemark/storage"
)

var _ storage.Documents = (*Store)(nil)

// Documents implements storage.Documents.
func (s *Store) Documents(
	ctx context.Context, kind, after string, limit int,
) ([]storage.Document, bool, error) {
	if err := s.enter(ctx); err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	var found []storage.Document
	for _, name := range slices.Sorted(maps.Keys(s.documents[kind])) {
		if name > after {
			found = append(found, s.documents[kind][name])
		}
	}
	found, more := page(found, limit)
	return found, more, nil
}

// DocumentsOf implements storage.Documents.
func (s *Store) DocumentsOf(
	ctx context.Context, keys []storage.DocumentKey,
) ([]storage.Document, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	found := make([]storage.Document, len(keys))
	for i, key := range keys {
		d := s.documents[key.Kind][key.Name]
		found[i] = storage.Document{
			Kind: key.Kind, Name: key.Name, Version: d.Version, Value: d.Value,
		}
	}
	return found, nil
}

// PutDocument implements storage.Documents.
func (s *Store) PutDocument(ctx context.Context, d storage.Document) (uint64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	//rule:told_in_order.compare-version-of-document
	if s.documents[d.Kind][d.Name].Version != d.Version {
		return 0, storage.Outdated(d.Kind, d.Name)
	}
	if d.Value == nil {
		delete(s.documents[d.Kind], d.Name)
		return 0, nil
	}
	if s.documents[d.Kind] == nil {
		s.documents[d.Kind] = map[string]storage.Document{}
	}
	d.Version, d.Value = d.Version+1, slices.Clone(d.Value)
	s.documents[d.Kind][d.Name] = d
	return d.Version, nil
}
