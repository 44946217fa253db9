package target

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/tidwall/redcon"
)

// Store is a key-value store that speaks a part of RESP, the protocol of Redis: GET and SET. It is the
// same in all servers, so that only their connections differ. It is safe for concurrent use.
type Store struct{ values sync.Map } // []byte by string

// NewStore returns an empty store.
func NewStore() *Store { return new(Store) }

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
			s.values.Store(string(args[1]), bytes.Clone(args[2]))
			answers = redcon.AppendOK(answers)
		default:
			return answers, len(p) - len(rest), errCommand
		}
		rest = after
	}
}

func (s *Store) appendValue(b, key []byte) []byte {
	value, ok := s.values.Load(string(key))
	if !ok {
		return redcon.AppendNull(b)
	}
	return redcon.AppendBulk(b, value.([]byte))
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
