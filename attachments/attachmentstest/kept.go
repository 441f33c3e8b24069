package attachmentstest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments"
	"github.com/tidemark-im/tidemark/attachments/dir"
	"github.com/tidemark-im/tidemark/storage"
)

// Picture is the id of a file of the user ann, which is uploaded.
const Picture = "PICTUREOFANNABCDEFGHIJKLMN"

// Base is the path below which an adapter serves files in tests.
const Base = "/api/v1/files"

// Kept returns files in a directory of the test, for tests of the adapters. Picture is one of them.
func Kept(t testing.TB, store attachments.Store) (*attachments.Attachments, *dir.Dir) {
	t.Helper()
	files, err := dir.New(t.TempDir(), Base)
	if err != nil {
		t.Fatal(err)
	}
	content := []byte("no real picture")
	file := attachments.File{
		ID: Picture, Name: "ann.png", Type: "image/png", Size: int64(len(content)),
		Sum: sha256.Sum256(content),
	}
	signed, err := files.SignUpload(t.Context(), "alice", &file, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	receive(t, files, attachments.Signed{File: file, Request: signed}, content)
	value, err := json.Marshal(struct {
		attachments.File
		Owner tidemark.UserID `json:"owner"`
		At    time.Time       `json:"at"`
		State string          `json:"state"`
	}{file, "ann", time.Now(), "announced"})
	if err == nil {
		_, err = store.PutDocument(context.Background(),
			storage.Document{Kind: "attachment:" + Picture, Name: "file", Value: value})
	}
	// Conflict: another test has put it into the store.
	if err != nil && tidemark.CodeOf(err) != tidemark.Conflict {
		t.Fatal(err)
	}
	return attachments.New(attachments.Config{
		Store: store, Bytes: files, Log: slog.New(slog.DiscardHandler),
	}), files
}

// Put uploads a small file of a user, and returns its id.
func Put(
	t testing.TB, kept *attachments.Attachments, files *dir.Dir, user tidemark.UserID,
) string {
	t.Helper()
	content := []byte("a file of " + user)
	signed, err := kept.Announce(t.Context(), user, attachments.File{
		Name: "a.txt", Type: "text/plain", Size: int64(len(content)), Sum: sha256.Sum256(content),
	})
	if err != nil {
		t.Fatal(err)
	}
	receive(t, files, signed, content)
	return signed.ID
}

// receive stores bytes as the adapter does.
func receive(t testing.TB, files *dir.Dir, signed attachments.Signed, content []byte) {
	t.Helper()
	address, err := url.Parse(signed.URL)
	if err == nil {
		err = files.Receive(dir.Put{
			ID: signed.ID, Grant: address.Query().Get("grant"), Type: signed.Type,
			Length: signed.Size, Body: bytes.NewReader(content),
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}
