package dsn

import (
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// arrays encodes a []string as text[] and an []int64 as bigint[], in one pass. A batch of drafts
// has twenty such arrays. pgx encodes each element separately, and allocates each number.
type arrays struct{ *pgtype.ArrayCodec }

// encodeArrays makes a connection use arrays.
func encodeArrays(c *pgx.Conn) {
	for _, oid := range []uint32{pgtype.TextArrayOID, pgtype.Int8ArrayOID} {
		if known, ok := c.TypeMap().TypeForOID(oid); ok {
			if codec, ok := known.Codec.(*pgtype.ArrayCodec); ok {
				c.TypeMap().RegisterType(&pgtype.Type{
					Name:  known.Name,
					OID:   known.OID,
					Codec: arrays{codec},
				})
			}
		}
	}
}

// PlanEncode implements pgtype.Codec.
func (a arrays) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case []string:
			if oid == pgtype.TextArrayOID {
				return encodeStrings{}
			}
		case []int64:
			if oid == pgtype.Int8ArrayOID {
				return encodeNumbers{}
			}
		}
	}
	return a.ArrayCodec.PlanEncode(m, oid, format, value)
}

type encodeStrings struct{}

// Encode implements pgtype.EncodePlan.
func (encodeStrings) Encode(value any, buf []byte) ([]byte, error) {
	all := value.([]string)
	if all == nil {
		return nil, nil
	}
	size := header
	for _, text := range all {
		size += 4 + len(text)
	}
	buf = appendHeader(slices.Grow(buf, size), pgtype.TextOID, len(all))
	for _, text := range all {
		buf = binary.BigEndian.AppendUint32(buf, uint32(len(text)))
		buf = append(buf, text...)
	}
	return buf, nil
}

type encodeNumbers struct{}

// Encode implements pgtype.EncodePlan.
func (encodeNumbers) Encode(value any, buf []byte) ([]byte, error) {
	all := value.([]int64)
	if all == nil {
		return nil, nil
	}
	buf = appendHeader(slices.Grow(buf, header+12*len(all)), pgtype.Int8OID, len(all))
	for _, n := range all {
		buf = binary.BigEndian.AppendUint32(buf, 8)
		buf = binary.BigEndian.AppendUint64(buf, uint64(n))
	}
	return buf, nil
}

// header is the maximum length of what appendHeader appends.
const header = 20

// appendHeader appends the header of an array with one dimension and no nulls. Each element comes
// after its length (Postgres, array_send).
func appendHeader(buf []byte, element uint32, n int) []byte {
	dimensions := uint32(1)
	//rule:confirmed_is_durable.empty-array
	if n == 0 {
		dimensions = 0
	}
	for _, field := range []uint32{dimensions, 0, element} {
		buf = binary.BigEndian.AppendUint32(buf, field)
	}
	if n > 0 {
		buf = binary.BigEndian.AppendUint32(buf, uint32(n))
		buf = binary.BigEndian.AppendUint32(buf, 1) // the first index
	}
	return buf
}
