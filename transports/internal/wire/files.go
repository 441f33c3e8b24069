package wire

import (
	"encoding/hex"
	"strconv"

	"github.com/tidemark-im/tidemark"
)

// NewFile is the body of POST /attachments.
type NewFile struct {
	Name, Type string
	Size       int64
	// SHA256 has 32 bytes.
	SHA256 []byte
}

// DecodeNewFile decodes the body of POST /attachments. It checks the forms, and not the limits.
func DecodeNewFile(raw []byte) (f NewFile, err error) {
	if err := check(raw); err != nil {
		return f, err
	}
	present := map[string]bool{}
	err = eachField(raw, wholeBody, func(key string, v value) error {
		present[key] = true
		switch key {
		case "name":
			return v.text(key, &f.Name)
		case "type":
			return v.text(key, &f.Type)
		case "size":
			n, err := strconv.ParseUint(string(v), 10, 53)
			if err != nil {
				return tidemark.BadParam(tidemark.Invalid, key,
					"must be a number of bytes, from 1 to 2^53-1")
			}
			f.Size = int64(n)
		case "sha256":
			var text string
			if err := v.text(key, &text); err != nil {
				return err
			}
			sum, err := hex.DecodeString(text)
			if f.SHA256 = sum; err != nil || len(sum) != 32 {
				return tidemark.BadParam(tidemark.Invalid, key,
					"must be the SHA-256 of the file, in 64 hexadecimal digits")
			}
		}
		return nil
	})
	for _, key := range []string{"name", "type", "size", "sha256"} {
		if err == nil && !present[key] {
			err = tidemark.BadParam(tidemark.Invalid, key, "is missing")
		}
	}
	return f, err
}
