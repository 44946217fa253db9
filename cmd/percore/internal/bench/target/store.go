package target

import (
	"errors"
	"hash/maphash"
	"io"
	"net"
	"sync"

	"github.com/tidwall/redcon"
)

// Store is a key-value store that speaks a part of RESP, the protocol of Redis: GET and SET. It is the
// same in all servers, so that only their connections differ. It is safe for concurrent use, and split
// into parts, so that goroutines seldom wait for each other.
type Store struct {
	seed  maphash.Seed
	parts [64]part
}

type part struct {
	mu     sync.Mutex
	values map[string][]byte
}

// NewStore returns an empty store.
func NewStore() *Store {
	s := &Store{seed: maphash.MakeSeed()}
	for i := range s.parts {
		s.parts[i].values = make(map[string][]byte)
	}
	return s
}

var errCommand = errors.New("the command is neither GET nor SET")

// Answer runs the complete commands in p, which it doesn't keep. It appends their answers to answers
// and returns how many bytes the commands had. After an error the connection is of no use.
func (s *Store) Answer(answers, p []byte) (_ []byte, used int, err error) {
	var args [3][]byte
	for rest := p; ; {
		complete, args, _, after, err := redcon.ReadNextCommand(rest, args[:0])
		if err != nil || !complete {
			return answers, len(p) - len(rest), err
		}
		switch {
		case len(args) == 2 && string(args[0]) == "GET":
			answers = s.appendValue(answers, args[1])
		case len(args) == 3 && string(args[0]) == "SET":
			s.set(args[1], args[2])
			answers = redcon.AppendOK(answers)
		default:
			return answers, len(p) - len(rest), errCommand
		}
		rest = after
	}
}

// of returns the part that has the key, locked.
func (s *Store) of(key []byte) *part {
	p := &s.parts[maphash.Bytes(s.seed, key)%uint64(len(s.parts))]
	p.mu.Lock()
	return p
}

func (s *Store) appendValue(b, key []byte) []byte {
	p := s.of(key)
	defer p.mu.Unlock()
	value, ok := p.values[string(key)]
	if !ok {
		return redcon.AppendNull(b)
	}
	return redcon.AppendBulk(b, value)
}

// set keeps copies of both.
func (s *Store) set(key, value []byte) {
	p := s.of(key)
	defer p.mu.Unlock()
	p.values[string(key)] = append(p.values[string(key)][:0], value...)
}

// answerCommands serves store's protocol on a connection. It answers all commands that came together
// with one write.
func answerCommands(c net.Conn, store *Store) error {
	buf, kept := make([]byte, 16<<10), 0
	var answers []byte
	for {
		n, err := c.Read(buf[kept:])
		if err != nil {
			return err
		}
		kept += n
		var used int
		if answers, used, err = store.Answer(answers[:0], buf[:kept]); err != nil {
			return err
		}
		if _, err := c.Write(answers); err != nil {
			return err
		}
		if kept = copy(buf, buf[used:kept]); kept == len(buf) {
			return io.ErrShortBuffer
		}
	}
}
