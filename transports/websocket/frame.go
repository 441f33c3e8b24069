package websocket

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// opcode says what a frame carries (RFC 6455 §11.8).
type opcode byte

const (
	opContinuation opcode = 0x0
	opText         opcode = 0x1
	opBinary       opcode = 0x2
	opClose        opcode = 0x8
	opPing         opcode = 0x9
	opPong         opcode = 0xa
)

// Bits of the first two bytes of a frame (RFC 6455 §5.2).
const (
	finalBit     = 0x80
	reservedBits = 0x70
	opcodeBits   = 0x0f
	maskBit      = 0x80
	lengthBits   = 0x7f
)

// The lengths that say that the real length follows, in 2 or in 8 bytes.
const (
	length16 = 126
	length64 = 127
)

// Close codes that the server does not choose itself, besides codeProtocol (RFC 6455 §7.4.1).
const (
	codeNormal     = 1000
	codeProtocol   = 1002
	codeNoStatus   = 1005 // the close frame had no code
	codeAbnormal   = 1006 // there was no close frame
	codeBadGateway = 1014
	codeLast       = 1015
)

// maxControl is the largest payload of a control frame, in bytes.
const maxControl = 125

// control reports whether frames of this opcode may come between the fragments of a message.
func (o opcode) control() bool { return o&0x8 != 0 }

// head is what precedes the payload of a client's frame.
type head struct {
	opcode opcode
	final  bool
	mask   [4]byte
	// size is the length of the head itself, and length that of the payload.
	size, length int
}

// refusal is the error for a client that breaks the protocol.
type refusal struct {
	code   int
	reason string
}

// Error implements error.
func (r *refusal) Error() string { return fmt.Sprintf("close %d: %s", r.code, r.reason) }

func malformed(reason string) error { return &refusal{codeProtocol, reason} }

// parseHead returns the head at the start of b. ok is false if b has only a part of it. A payload
// of more than most bytes is refused.
func parseHead(b []byte, most int) (h head, ok bool, err error) {
	if len(b) < 2 {
		return h, false, nil
	}
	h = head{opcode: opcode(b[0] & opcodeBits), final: b[0]&finalBit != 0, size: 2 + len(h.mask)}
	length := uint64(b[1] & lengthBits)
	switch {
	case b[0]&reservedBits != 0:
		return h, false, malformed("a reserved bit is set")
	case h.opcode > opBinary && h.opcode < opClose || h.opcode > opPong:
		return h, false, malformed("unknown opcode")
	case b[1]&maskBit == 0:
		return h, false, malformed("a frame is not masked")
	case h.opcode.control() && !h.final:
		return h, false, malformed("a control frame is fragmented")
	case h.opcode.control() && length > maxControl:
		return h, false, malformed("a control frame is too long")
	case length == length16:
		h.size += 2
	case length == length64:
		h.size += 8
	}
	if len(b) < h.size {
		return h, false, nil
	}
	switch length {
	case length16:
		length = uint64(binary.BigEndian.Uint16(b[2:]))
	case length64:
		length = binary.BigEndian.Uint64(b[2:])
	}
	// A control frame between two fragments is no part of their message (RFC 6455 §5.4).
	//rule:bounded_input.limit-frame
	if !h.opcode.control() && length > uint64(most) {
		return h, false, &refusal{CloseTooLarge, ""}
	}
	h.length = int(length)
	copy(h.mask[:], b[h.size-len(h.mask):])
	return h, true, nil
}

// unmask restores a payload that the client masked (RFC 6455 §5.3).
func unmask(b []byte, mask [4]byte) {
	m := binary.LittleEndian.Uint32(mask[:])
	wide := uint64(m)<<32 | uint64(m)
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^wide)
	}
	for i := range b {
		b[i] ^= mask[i%len(mask)]
	}
}

// appendHead appends the head of a server's frame, which is final and not masked.
func appendHead(b []byte, o opcode, length int) []byte {
	b = append(b, byte(o)|finalBit)
	switch {
	case length < length16:
		return append(b, byte(length))
	case length < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, length16), uint16(length))
	default:
		return binary.BigEndian.AppendUint64(append(b, length64), uint64(length))
	}
}

// closing is the error after the client's close frame. Its code is codeNoStatus if the frame had
// none.
type closing struct{ code int }

// Error implements error.
func (c *closing) Error() string { return fmt.Sprintf("the client closed with %d", c.code) }

// parseClose returns the error for the payload of a close frame: closing, or a refusal.
func parseClose(payload []byte) error {
	switch {
	case len(payload) == 0:
		return &closing{codeNoStatus}
	case len(payload) == 1:
		return malformed("a close code has one byte")
	case !utf8.Valid(payload[2:]):
		return malformed("the reason of a close frame is not UTF-8")
	}
	code := int(binary.BigEndian.Uint16(payload))
	if !mayReceive(code) {
		return malformed("bad close code")
	}
	return &closing{code}
}

// mayReceive reports whether a client may send a close code (RFC 6455 §7.4).
func mayReceive(code int) bool {
	switch {
	case code >= 3000 && code < 5000: // of libraries and applications
		return true
	case code == 1004, code == codeNoStatus, code == codeAbnormal:
		return false
	}
	return code >= codeNormal && code <= codeBadGateway
}

// maxReason is the largest length of a close frame's reason, in bytes.
const maxReason = maxControl - 2

// appendClose appends the payload of a close frame. reason is cut to maxReason.
func appendClose(b []byte, code int, reason string) []byte {
	if code == codeNoStatus {
		return b
	}
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	return append(binary.BigEndian.AppendUint16(b, uint16(code)), reason...)
}
