package load

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// burstSession sends one byte to request an answer of a known length.
type burstSession struct {
	conn   net.Conn
	answer int
	buf    []byte
}

var burstRequest = []byte("x")

func burstOpener(job Job) (opener, error) {
	if job.Payload <= 0 {
		return nil, errors.New("a burst needs a payload")
	}
	return func(int) (session, error) {
		c, err := dial(job.Addr)
		if err != nil {
			return nil, err
		}
		return &burstSession{conn: c, answer: job.Payload, buf: make([]byte, min(job.Payload, bodyChunk))}, nil
	}, nil
}

func (s *burstSession) op() error {
	if _, err := s.conn.Write(burstRequest); err != nil {
		return err
	}
	for rest := s.answer; rest > 0; {
		n, err := s.conn.Read(s.buf[:min(rest, len(s.buf))])
		rest -= n
		if err != nil && rest > 0 {
			return fmt.Errorf("read burst: %w", unexpectedEOF(err))
		}
	}
	return nil
}

func (s *burstSession) setDeadline(t time.Time) { s.conn.SetDeadline(t) }
func (s *burstSession) close()                  { s.conn.Close() }
