package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// respSession sends commands for a key-value server together, half of them SET and half GET, and
// reads their answers.
type respSession struct {
	conn           net.Conn
	commands, want []byte
	buf            []byte
}

func respOpener(job Job) (opener, error) {
	if job.Payload <= 0 || job.Pipeline < 2 {
		return nil, errors.New("a load of commands needs a payload, and a pipeline of two")
	}
	value := bytes.Repeat([]byte("v"), job.Payload)
	return func(i int) (session, error) {
		c, err := dial(job.Addr)
		if err != nil {
			return nil, err
		}
		s := &respSession{conn: c}
		for n := range job.Pipeline / 2 {
			key := fmt.Sprintf("key:%08d:%03d", i, n) // which no other session has
			s.commands = fmt.Appendf(s.commands, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, len(value), value)
			s.commands = fmt.Appendf(s.commands, "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key), key)
			s.want = fmt.Appendf(s.want, "+OK\r\n$%d\r\n%s\r\n", len(value), value)
		}
		s.buf = make([]byte, len(s.want))
		return s, nil
	}, nil
}

func (s *respSession) op() error {
	if _, err := s.conn.Write(s.commands); err != nil {
		return err
	}
	if _, err := io.ReadFull(s.conn, s.buf); err != nil {
		return fmt.Errorf("read answers: %w", unexpectedEOF(err))
	}
	if !bytes.Equal(s.buf, s.want) {
		return errors.New("the answers differ from what was set")
	}
	return nil
}

func (s *respSession) setDeadline(t time.Time) { s.conn.SetDeadline(t) }
func (s *respSession) close()                  { s.conn.Close() }
