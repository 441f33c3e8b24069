package dsn

import (
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// texts encodes a []string as text[] in one pass. A batch of drafts has six such arrays. pgx
// encodes each string separately, which takes 1 µs of the 35 µs per message.
type texts struct{ *pgtype.ArrayCodec }

// encodeTexts makes a connection use texts.
func encodeTexts(c *pgx.Conn) {
	if known, ok := c.TypeMap().TypeForOID(pgtype.TextArrayOID); ok {
		if codec, ok := known.Codec.(*pgtype.ArrayCodec); ok {
			c.TypeMap().RegisterType(&pgtype.Type{
				Name:  known.Name,
				OID:   known.OID,
				Codec: texts{codec},
			})
		}
	}
}

// PlanEncode implements pgtype.Codec.
func (t texts) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([]string); ok && format == pgtype.BinaryFormatCode {
		return encodeStrings{}
	}
	return t.ArrayCodec.PlanEncode(m, oid, format, value)
}

type encodeStrings struct{}

// Encode implements pgtype.EncodePlan. It writes the header of an array with one dimension and no
// nulls, then each string after its length (Postgres, array_send).
func (encodeStrings) Encode(value any, buf []byte) ([]byte, error) {
	all := value.([]string)
	if all == nil {
		return nil, nil
	}
	size := 20 // the header
	for _, text := range all {
		size += 4 + len(text)
	}
	buf = slices.Grow(buf, size)
	dimensions := uint32(1)
	//rule:confirmed_is_durable.empty-text-array
	if len(all) == 0 {
		dimensions = 0
	}
	for _, field := range []uint32{dimensions, 0, pgtype.TextOID} {
		buf = binary.BigEndian.AppendUint32(buf, field)
	}
	if len(all) > 0 {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(all)))
		buf = binary.BigEndian.AppendUint32(buf, 1) // the first index
	}
	for _, text := range all {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(text)))
		buf = append(buf, text...)
	}
	return buf, nil
}
