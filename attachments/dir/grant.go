package dir

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments"
)

// use is what a URL is for.
type use string

const (
	upload   use = "upload"
	download use = "download"
)

// grant is what a signed URL allows: one use of one file, until a time.
type grant struct {
	attachments.File
	Use         use    `json:"use"`
	Disposition string `json:"disposition,omitempty"`
	// For stands for the user to whom the URL was given.
	For string `json:"for"`
	// Until is in seconds of Unix time.
	Until int64 `json:"until"`
}

// Uploader returns a text that stands for the user to whom the URL of an upload was given. Errors:
// Denied, as Receive.
func (d *Dir) Uploader(id, signed string) (string, error) { return d.holder(id, upload, signed) }

// Downloader does the same for a download.
func (d *Dir) Downloader(id, signed string) (string, error) {
	return d.holder(id, download, signed)
}

func (d *Dir) holder(id string, of use, signed string) (string, error) {
	g, err := d.open(id, of, signed)
	if err != nil {
		return "", err
	}
	return g.For, nil
}

// grantee returns what stands for a user in grants. It is no name, because URLs are passed on.
func (d *Dir) grantee(user tidemark.UserID) string {
	return encoded(d.mac([]byte("user " + user))[:12])
}

// sign returns a grant with its HMAC-SHA256.
func (d *Dir) sign(g grant) string {
	text, _ := json.Marshal(g) // never fails: it has only texts and numbers
	return encoded(text) + "." + encoded(d.mac(text))
}

func encoded(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (d *Dir) mac(text []byte) []byte {
	h := hmac.New(sha256.New, d.key)
	h.Write(text)
	return h.Sum(nil)
}

// open returns what a signed text allows. Denied: it is not signed by this directory's key, is for
// another file or use, or has expired. Nothing else is said of a grant with a wrong signature.
func (d *Dir) open(id string, of use, signed string) (*grant, error) {
	payload, signature, _ := strings.Cut(signed, ".")
	text, textErr := base64.RawURLEncoding.Strict().DecodeString(payload)
	mac, macErr := base64.RawURLEncoding.Strict().DecodeString(signature)
	//rule:no_file_outside_membership.signed-urls-only
	if textErr != nil || macErr != nil || !hmac.Equal(mac, d.mac(text)) {
		return nil, tidemark.BadParam(tidemark.Denied, "grant",
			"was not made by this server, or was changed; ask for a new URL")
	}
	g := new(grant)
	if err := json.Unmarshal(text, g); err != nil {
		return nil, tidemark.Wrap(tidemark.Internal, err, "a signed grant cannot be read")
	}
	switch {
	//rule:no_file_outside_membership.url-of-one-file-and-use
	case g.ID != id || g.Use != of:
		return nil, tidemark.BadParam(tidemark.Denied, "grant",
			"is for another file or method; use the URL as it was given")
	//rule:no_file_outside_membership.url-expires
	case d.now().Unix() >= g.Until:
		return nil, tidemark.BadParam(tidemark.Denied, "grant", "has expired; ask for a new URL")
	}
	return g, nil
}
