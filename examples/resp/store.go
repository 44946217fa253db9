package main

import (
	"hash/maphash"
	"math"
	"strconv"
	"sync"
)

// store holds the keys and values of all loops. It is split into parts, so that loops seldom wait
// for each other.
type store struct {
	seed  maphash.Seed
	parts [64]part
}

type part struct {
	mu     sync.Mutex
	values map[string][]byte
}

func newStore() *store {
	s := &store{seed: maphash.MakeSeed()}
	for i := range s.parts {
		s.parts[i].values = make(map[string][]byte)
	}
	return s
}

// of returns the part that has the key, locked.
func (s *store) of(key []byte) *part {
	p := &s.parts[maphash.Bytes(s.seed, key)%uint64(len(s.parts))]
	p.mu.Lock()
	return p
}

// appendValue appends a key's value as a bulk string, or null if there is no value.
func (s *store) appendValue(b, key []byte) []byte {
	p := s.of(key)
	defer p.mu.Unlock()
	if value, ok := p.values[string(key)]; ok {
		return appendBulk(b, value)
	}
	return append(b, "$-1\r\n"...)
}

// set keeps copies of both.
func (s *store) set(key, value []byte) {
	p := s.of(key)
	defer p.mu.Unlock()
	if old, ok := p.values[string(key)]; ok && cap(old) >= len(value) && cap(old) <= 2*len(value)+64 {
		p.values[string(key)] = append(old[:0], value...) // nothing else refers to the old value
		return
	}
	p.values[string(key)] = append([]byte(nil), value...)
}

// remove takes keys out, and returns how many there were.
func (s *store) remove(keys [][]byte) (removed int) {
	for _, key := range keys {
		p := s.of(key)
		if _, ok := p.values[string(key)]; ok {
			delete(p.values, string(key))
			removed++
		}
		p.mu.Unlock()
	}
	return removed
}

// increment adds 1 to a number; a key that isn't there counts as 0. It fails with the errors of
// strconv.ParseInt.
func (s *store) increment(key []byte) (n int64, err error) {
	p := s.of(key)
	defer p.mu.Unlock()
	if value, ok := p.values[string(key)]; ok {
		if n, err = strconv.ParseInt(string(value), 10, 64); err != nil {
			return 0, err
		}
	}
	if n == math.MaxInt64 {
		return 0, strconv.ErrRange
	}
	n++
	p.values[string(key)] = strconv.AppendInt(nil, n, 10)
	return n, nil
}
