package attachments

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"mime"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// Sum is a SHA-256. In JSON it is hexadecimal.
type Sum [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler.
func (s Sum) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sum) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(s)) {
		return hex.ErrLength
	}
	_, err := hex.Decode(s[:], text)
	return err
}

// File is what its owner said of a file.
type File struct {
	ID string `json:"id"`
	// Name and Type are for those who download it. Type is a media type.
	Name string `json:"name"`
	Type string `json:"type"`
	// Size is from 1 to MaxSize bytes.
	Size int64 `json:"size"`
	Sum  Sum   `json:"sha256"`
}

// state is how far a file has come.
type state string

// The states of a file. The sweep looks at a file when it is old enough (Sweep).
//
//	state       a send names it   the sweep looks at it
//	announced   pinned            removing
//	pinned      pinned            removing, if its only send has stored no message
//	removing    refused           gone
const (
	announced state = "announced"
	pinned    state = "pinned"
	removing  state = "removing"
)

// record is the stored form of a file.
type record struct {
	File
	Owner tidemark.UserID `json:"owner"`
	At    time.Time       `json:"at"`
	State state           `json:"state"`
	// Send is the only send that has named the file, and Pinned when it did so last. It may have
	// stored no message. nil: the file was not pinned, or is kept for ever.
	Send   *storage.SendKey `json:"send,omitempty"`
	Pinned time.Time        `json:"pinned,omitzero"`
}

// idShape is the form of a file's id: 130 random bits.
var idShape = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// ValidID reports whether s can be the id of a file. Such an id is safe as a name in a file system.
func ValidID(s string) bool { return idShape.MatchString(s) }

func newID() string { return rand.Text() }

// check returns an error unless a file may be announced. The field is named.
func (f *File) check() error {
	switch {
	case f.Name == "" || len(f.Name) > MaxName || !utf8.ValidString(f.Name):
		return tidemark.BadParam(tidemark.Invalid, "name", "must be 1 to %d bytes of UTF-8",
			MaxName)
	//rule:bounded_input.plain-file-names
	case strings.ContainsFunc(f.Name, neverInName):
		return tidemark.BadParam(tidemark.Invalid, "name",
			"holds a slash, a backslash, or a character that is not shown; send the last part of "+
				"the path")
	case f.Name == "." || f.Name == "..":
		return tidemark.BadParam(tidemark.Invalid, "name", "is that of a directory; name a file")
	case f.Size < 1:
		return tidemark.BadParam(tidemark.Invalid, "size", "must be at least 1")
	//rule:bounded_input.bound-file-size
	case f.Size > MaxSize:
		return tidemark.BadParam(tidemark.TooLarge, "size", "is %d bytes, at most %d are allowed",
			f.Size, MaxSize)
	}
	return checkType(f.Type)
}

// neverInName reports whether a character has no place in a file's name. Some would show another
// extension than the file has. Joiners have a place, though they are not printable: Persian and
// many emoji are written with them.
func neverInName(r rune) bool {
	return r == '/' || r == '\\' || unicode.Is(unicode.Bidi_Control, r) ||
		!unicode.IsPrint(r) && !unicode.Is(unicode.Join_Control, r)
}

func checkType(text string) error {
	media, _, err := mime.ParseMediaType(text)
	if err != nil || len(text) > MaxType || !strings.Contains(media, "/") ||
		strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return tidemark.BadParam(tidemark.Invalid, "type",
			"must be a media type of at most %d bytes, such as image/png", MaxType)
	}
	return nil
}

// pictures are the media types that a browser may show in place. None of them can hold a script.
var pictures = []string{"image/avif", "image/gif", "image/jpeg", "image/png", "image/webp"}

// disposition returns the Content-Disposition with which a file is served.
func (f *File) disposition() string {
	how := "attachment"
	//rule:no_file_outside_membership.only-pictures-in-place
	if slices.Contains(pictures, f.Type) {
		how = "inline"
	}
	return mime.FormatMediaType(how, map[string]string{"filename": f.Name})
}

// encode returns the stored form.
func (r *record) encode() ([]byte, error) { return json.Marshal(r) }

// decode returns what is stored.
func decode(value []byte) (*record, error) {
	r := new(record)
	if err := json.Unmarshal(value, r); err != nil {
		return nil, tidemark.Wrap(tidemark.Internal, err, "what is stored of a file is damaged")
	}
	return r, nil
}
