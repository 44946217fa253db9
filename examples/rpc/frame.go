package main

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/percore/percore/adapters/reactor/frame"
)

// A frame is its length, without these four bytes, and its contents.
var format = frame.Prefix{Bytes: headLen, Limit: frameMax}

const (
	headLen   = 4
	frameMax  = 1 << 20
	resultMax = frameMax - 5 // beside a number and a status
)

// The status of an answer.
const (
	succeeded = 0
	failed    = 1
)

var errFrame = errors.New("rpc: a frame is too long, or too short for what it should have")

// parseCall returns the parts of a call, which are slices of its frame.
func parseCall(frame []byte) (number uint32, name, arg []byte, err error) {
	if len(frame) < 5 || len(frame)-5 < int(frame[4]) {
		return 0, nil, nil, errFrame
	}
	rest := frame[5:]
	return binary.BigEndian.Uint32(frame), rest[:frame[4]], rest[frame[4]:], nil
}

// appendCall appends the frame of a call. The name has at most 255 bytes.
func appendCall(b []byte, number uint32, name string, arg []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(5+len(name)+len(arg)))
	b = binary.BigEndian.AppendUint32(b, number)
	b = append(append(b, byte(len(name))), name...)
	return append(b, arg...)
}

// appendAnswer appends the frame of an answer.
func appendAnswer(b []byte, number uint32, result []byte, err error) []byte {
	status := byte(succeeded)
	if err != nil {
		status, result = failed, []byte(err.Error())
	}
	b = binary.BigEndian.AppendUint32(b, uint32(5+len(result)))
	b = binary.BigEndian.AppendUint32(b, number)
	return append(append(b, status), result...)
}

// readAnswer reads an answer, for clients. err is the call's, or that of reading.
func readAnswer(r io.Reader) (number uint32, result []byte, err error) {
	var head [headLen + 5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 5 || n > frameMax {
		return 0, nil, errFrame
	}
	result = make([]byte, n-5)
	if _, err := io.ReadFull(r, result); err != nil {
		return 0, nil, err
	}
	number = binary.BigEndian.Uint32(head[headLen:])
	if head[headLen+4] != succeeded {
		return number, nil, errors.New(string(result))
	}
	return number, result, nil
}
