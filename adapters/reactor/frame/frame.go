// Package frame splits the bytes that a handler's Data gets into messages: lines, and messages with
// their length in front. The functions keep no state, because Data gets unused bytes again:
//
//	func (h) Data(c *reactor.Conn, p []byte) (used int) {
//		line, used, err := frame.Line(p, 1024)
//		switch {
//		case err != nil:
//			c.Abort() // too long
//		case used > 0:
//			... // the line, without its end
//		}
//		return used
//	}
//
// All results are parts of p, so they belong to the loop as well. The functions are safe for
// concurrent use.
package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrTooLong is the error for a message that is longer than its limit, or whose length can't be sent.
var ErrTooLong = errors.New("frame: the message is too long")

// Line returns the first line of p without its end, "\n" or "\r\n", and how many bytes it takes with
// the end. used is 0 if p has no end of a line yet. It fails with [ErrTooLong] once the line has more
// than limit bytes, which bounds how often the same bytes are looked at.
func Line(p []byte, limit int) (line []byte, used int, err error) {
	// The limit may be any number: nothing is added to it.
	end := bytes.IndexByte(p[:min(len(p)-len("\r\n"), max(limit, 0))+len("\r\n")], '\n')
	line = p
	if end >= 0 {
		line, used = p[:end], end+1
	}
	if n := len(line); n > 0 && line[n-1] == '\r' { // without an end: it may be the end's beginning
		line = line[:n-1]
	}
	switch {
	case len(line) > limit:
		return nil, 0, ErrTooLong
	case end < 0:
		return nil, 0, nil
	}
	return line, used, nil
}

// Prefix describes messages with their length in front, which counts only the bytes behind it.
type Prefix struct {
	Bytes        int  // of the length: 1, 2, 4 or 8
	LittleEndian bool // the default is big endian, the order of networks
	Limit        int  // bytes of a message at most, without its length
}

// Next returns the first message of p and how many bytes it takes with its length. used is 0 if p
// hasn't all of it. It fails with [ErrTooLong] as soon as the length is there and exceeds Limit.
func (x Prefix) Next(p []byte) (message []byte, used int, err error) {
	if len(p) < x.Bytes {
		return nil, 0, nil
	}
	size := x.length(p)
	switch {
	case size > uint64(max(x.Limit, 0)):
		return nil, 0, ErrTooLong
	case size > uint64(len(p)-x.Bytes):
		return nil, 0, nil
	}
	used = x.Bytes + int(size)
	return p[x.Bytes:used:used], used, nil
}

// AppendLength appends the length of a message of n bytes to p: a header for
// [reactor.Conn.WriteBuffers]. It fails with [ErrTooLong] if n exceeds Limit or what Bytes hold.
func (x Prefix) AppendLength(p []byte, n int) ([]byte, error) {
	if n > x.Limit || uint64(n) > math.MaxUint64>>(64-8*x.Bytes) {
		return p, ErrTooLong
	}
	var big [8]byte
	binary.BigEndian.PutUint64(big[:], uint64(n))
	header := big[len(big)-x.width():]
	if x.LittleEndian {
		for i := len(header) - 1; i >= 0; i-- {
			p = append(p, header[i])
		}
		return p, nil
	}
	return append(p, header...), nil
}

// length reads the length that p begins with.
func (x Prefix) length(p []byte) (n uint64) {
	for i := range x.width() {
		at := i
		if x.LittleEndian {
			at = x.Bytes - 1 - i
		}
		n = n<<8 | uint64(p[at])
	}
	return n
}

// width returns Bytes, and panics if that makes no sense.
func (x Prefix) width() int {
	switch x.Bytes {
	case 1, 2, 4, 8:
		return x.Bytes
	}
	panic(fmt.Sprintf("frame: a Prefix has %d Bytes; it must be 1, 2, 4 or 8", x.Bytes))
}
