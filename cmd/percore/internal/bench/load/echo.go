package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// echoSession writes a message and reads it back.
type echoSession struct {
	conn net.Conn
	msg  []byte // shared by all sessions, never written
	buf  []byte
}

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
		return &echoSession{conn: c, msg: msg, buf: make([]byte, len(msg))}, nil
	}, nil
}

func (s *echoSession) op() error {
	if _, err := s.conn.Write(s.msg); err != nil {
		return err
	}
	if _, err := io.ReadFull(s.conn, s.buf); err != nil {
		return fmt.Errorf("read echo: %w", unexpectedEOF(err))
	}
	if !bytes.Equal(s.buf, s.msg) {
		return errors.New("the echo differs from what was sent")
	}
	return nil
}

func (s *echoSession) setDeadline(t time.Time) { s.conn.SetDeadline(t) }
func (s *echoSession) close()                  { s.conn.Close() }

// unexpectedEOF says that an end of stream came too early.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
