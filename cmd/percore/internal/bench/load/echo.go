package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

func echoOpener(job Job) (opener, error) {
	if job.Payload <= 0 {
		return nil, errors.New("echo needs a payload")
	}
	msg := bytes.Repeat([]byte("x"), job.Payload)
	return func(int) (session, error) {
		c, err := dial(job.Addr)
		if err != nil {
			return nil, err
		}
		return &exchange{conn: c, send: msg, want: msg, buf: make([]byte, len(msg)), name: "echo", wrong: errEcho}, nil
	}, nil
}

// burstOpener's sessions send one byte for an answer of a known length.
func burstOpener(job Job) (opener, error) {
	if job.Payload <= 0 {
		return nil, errors.New("a burst needs a payload")
	}
	return func(int) (session, error) {
		c, err := dial(job.Addr)
		if err != nil {
			return nil, err
		}
		return &exchange{conn: c, send: []byte("x"), buf: make([]byte, job.Payload), name: "burst"}, nil
	}, nil
}

var errEcho = errors.New("the echo differs from what was sent")

// exchange is a session that sends bytes and reads the answer that they must have.
type exchange struct {
	conn       net.Conn
	send, want []byte // never written: sessions may share them; want is nil if any bytes will do
	buf        []byte // as long as the answer
	name       string // of the answer
	wrong      error  // another answer's
}

func (s *exchange) op() error {
	if _, err := s.conn.Write(s.send); err != nil {
		return err
	}
	if _, err := io.ReadFull(s.conn, s.buf); err != nil {
		return fmt.Errorf("read %s: %w", s.name, unexpectedEOF(err))
	}
	if s.want != nil && !bytes.Equal(s.buf, s.want) {
		return s.wrong
	}
	return nil
}

func (s *exchange) setDeadline(t time.Time) { s.conn.SetDeadline(t) }
func (s *exchange) close()                  { s.conn.Close() }

// unexpectedEOF says that an end of stream came too early.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
