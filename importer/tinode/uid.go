package tinode

import (
	"encoding/base64"
	"encoding/binary"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// Key is the uid_key of a Tinode server. With it the server makes the ids of users that clients see
// out of the numbers in its database.
type Key [4]uint32

// ParseKey returns the key of a text, as tinode.conf has it: 16 bytes in base64.
func ParseKey(text string) (Key, error) {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(raw) != 16 {
		return Key{}, tidemark.BadParam(tidemark.Invalid, "uid_key", "must be 16 bytes in "+
			"base64; it is uid_key in store_config of tinode.conf")
	}
	var k Key
	for i := range k {
		k[i] = binary.BigEndian.Uint32(raw[4*i:])
	}
	return k, nil
}

// rounds and delta are those of XTEA, the cipher of the ids.
const (
	rounds = 32
	delta  = 0x9e3779b9
)

// encrypt encrypts a block by XTEA.
func (k Key) encrypt(block [8]byte) [8]byte {
	a := binary.BigEndian.Uint32(block[:4])
	b := binary.BigEndian.Uint32(block[4:])
	var sum uint32
	for range rounds {
		a += (b<<4 ^ b>>5) + b ^ (sum + k[sum&3])
		sum += delta
		b += (a<<4 ^ a>>5) + a ^ (sum + k[sum>>11&3])
	}
	binary.BigEndian.PutUint32(block[:4], a)
	binary.BigEndian.PutUint32(block[4:], b)
	return block
}

// User returns the id of a user by their number in the database, such as usrSX3z0HJhLLU.
func (k Key) User(number int64) string {
	var block [8]byte
	binary.LittleEndian.PutUint64(block[:], uint64(number))
	encrypted := k.encrypt(block)
	return userID(encrypted[:])
}

// userID returns the id of a user by its 8 bytes.
func userID(raw []byte) string { return "usr" + base64.RawURLEncoding.EncodeToString(raw) }

// pairOf returns the two users of a topic of two, whose name has their ids.
func pairOf(topic string) ([]string, error) {
	text, found := strings.CutPrefix(topic, "p2p")
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if !found || err != nil || len(raw) != 16 {
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the topic %s has no name of a topic of two users", topic)
	}
	return []string{userID(raw[:8]), userID(raw[8:])}, nil
}
