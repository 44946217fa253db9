// Package kv is a key-value store that speaks a part of RESP, the protocol of Redis: GET and SET. It
// is the same in all servers of the benchmark, so that only their connections differ.
package kv

import (
	"bytes"
	"errors"
	"hash/maphash"
	"strconv"
	"sync"
)

// Store holds keys and values. It is safe for concurrent use, and split into parts, so that
// goroutines seldom wait for each other.
type Store struct {
	seed  maphash.Seed
	parts [64]part
}

type part struct {
	mu     sync.Mutex
	values map[string][]byte
}

// New returns an empty store.
func New() *Store {
	s := &Store{seed: maphash.MakeSeed()}
	for i := range s.parts {
		s.parts[i].values = make(map[string][]byte)
	}
	return s
}

var (
	errProtocol = errors.New("kv: not an array of bulk strings")
	errCommand  = errors.New("kv: the command is neither GET nor SET")
)

// partMax is how long a command's name, a key or a value may be.
const partMax = 64 << 10

// Answer runs the complete commands in p, which it doesn't keep. It appends their answers to answers
// and returns how many bytes the commands had. After an error the connection is of no use.
func (s *Store) Answer(answers, p []byte) (_ []byte, used int, err error) {
	for {
		args, n, err := parse(p[used:])
		if n == 0 || err != nil {
			return answers, used, err
		}
		used += n
		switch {
		case args[2] == nil && string(args[0]) == "GET":
			answers = s.appendValue(answers, args[1])
		case args[2] != nil && string(args[0]) == "SET":
			s.set(args[1], args[2])
			answers = append(answers, "+OK\r\n"...)
		default:
			return answers, used, errCommand
		}
	}
}

// parse reads the command at the start of p, two or three bulk strings. n is its length, or 0 if it
// is incomplete.
func parse(p []byte) (args [3][]byte, n int, err error) {
	count, n, err := number(p, '*')
	if n == 0 || err != nil {
		return args, 0, err
	}
	if count < 2 || count > len(args) {
		return args, 0, errProtocol
	}
	for i := range count {
		length, m, err := number(p[n:], '$')
		if m == 0 || err != nil {
			return args, 0, err
		}
		n += m
		if len(p)-n < length+2 {
			return args, 0, nil
		}
		args[i] = p[n:][:length]
		n += length + 2
	}
	return args, n, nil
}

// number reads the line at the start of p, a mark and a number. n is its length, or 0 if it is
// incomplete.
func number(p []byte, mark byte) (value, n int, err error) {
	if len(p) == 0 {
		return 0, 0, nil
	}
	end := bytes.IndexByte(p, '\n')
	switch {
	case p[0] != mark || end < 0 && len(p) > 16:
		return 0, 0, errProtocol
	case end < 0:
		return 0, 0, nil
	case end < 3 || p[end-1] != '\r':
		return 0, 0, errProtocol
	}
	for _, c := range p[1 : end-1] {
		if c < '0' || c > '9' {
			return 0, 0, errProtocol
		}
		if value = value*10 + int(c-'0'); value > partMax {
			return 0, 0, errProtocol
		}
	}
	return value, end + 1, nil
}

// of returns the part that has the key, locked.
func (s *Store) of(key []byte) *part {
	p := &s.parts[maphash.Bytes(s.seed, key)%uint64(len(s.parts))]
	p.mu.Lock()
	return p
}

// appendValue appends a key's value as a bulk string, or null if there is no value.
func (s *Store) appendValue(b, key []byte) []byte {
	p := s.of(key)
	defer p.mu.Unlock()
	value, ok := p.values[string(key)]
	if !ok {
		return append(b, "$-1\r\n"...)
	}
	b = strconv.AppendInt(append(b, '$'), int64(len(value)), 10)
	return append(append(append(b, "\r\n"...), value...), "\r\n"...)
}

// set keeps copies of both.
func (s *Store) set(key, value []byte) {
	p := s.of(key)
	defer p.mu.Unlock()
	p.values[string(key)] = append(p.values[string(key)][:0], value...)
}
