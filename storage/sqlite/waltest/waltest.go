// Package waltest reads SQLite's write-ahead logs (sqlite.org/fileformat2.html#walformat). It
// damages them as a crash, a power cut or a bad disk does.
package waltest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
)

const (
	headerSize      = 32
	frameHeaderSize = 24
	littleEndian    = 0x377f0682
)

// Commits returns the offset at which each commit of a log ends. Like SQLite's recovery, it stops
// at the first incomplete frame. A log without a valid header has no commits.
func Commits(path string) (ends []int64, err error) {
	log, err := os.ReadFile(path)
	if err != nil || len(log) < headerSize {
		return nil, err
	}
	magic := binary.BigEndian.Uint32(log)
	if magic&^1 != littleEndian {
		return nil, nil
	}
	var order binary.ByteOrder = binary.LittleEndian
	if magic&1 == 1 {
		order = binary.BigEndian
	}
	sum := checksum(order, [2]uint32{}, log[:24])
	if sum != pair(log[24:]) {
		return nil, nil
	}
	page := int(binary.BigEndian.Uint32(log[8:]))
	for at := headerSize; at+frameHeaderSize+page <= len(log); at += frameHeaderSize + page {
		frame := log[at : at+frameHeaderSize+page]
		sum = checksum(order, checksum(order, sum, frame[:8]), frame[frameHeaderSize:])
		if string(frame[8:16]) != string(log[16:24]) || sum != pair(frame[16:]) {
			break
		}
		if binary.BigEndian.Uint32(frame[4:]) != 0 {
			ends = append(ends, int64(at+len(frame)))
		}
	}
	return ends, nil
}

func pair(b []byte) [2]uint32 {
	return [2]uint32{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])}
}

func checksum(order binary.ByteOrder, s [2]uint32, b []byte) [2]uint32 {
	for ; len(b) >= 8; b = b[8:] {
		s[0] += order.Uint32(b) + s[1]
		s[1] += order.Uint32(b[4:]) + s[0]
	}
	return s
}

// Tear damages a log from an offset on, and describes the damage. It chooses one of four ways: it
// cuts the file, changes one byte, overwrites a part, or adds bytes to the end.
func Tear(path string, offset int64, random *rand.Rand) (how string, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	rest := info.Size() - offset
	garbage := make([]byte, 1+random.IntN(20_000))
	for i := range garbage {
		garbage[i] = byte(random.Uint32())
	}
	way := random.IntN(4)
	if rest <= 0 {
		way = 3
	}
	switch way {
	case 0:
		how = fmt.Sprintf("cut at %d of %d", offset, info.Size())
		err = f.Truncate(offset)
	case 1:
		at := offset + random.Int64N(rest)
		how = fmt.Sprintf("byte %d of %d changed", at, info.Size())
		var b [1]byte
		if _, err := f.ReadAt(b[:], at); err != nil {
			return "", err
		}
		b[0] ^= byte(1 + random.IntN(255))
		_, err = f.WriteAt(b[:], at)
	case 2:
		how = fmt.Sprintf("garbage at %d of %d", offset, info.Size())
		_, err = f.WriteAt(garbage, offset)
	default:
		how = fmt.Sprintf("garbage behind %d", info.Size())
		_, err = f.WriteAt(garbage, max(info.Size(), offset))
	}
	return how, err
}
