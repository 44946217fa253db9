package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// exchange is a session that sends bytes and reads the answer that they must have.
type exchange struct {
	conn       net.Conn
	send, want []byte // want is nil if any bytes will do
	buf        []byte // as long as the answer
}

// exchanges returns sessions of an app. They send a message and get it back, or a byte for an answer of
// a known length, or commands for a key-value store together, half of them SET and half GET.
func exchanges(job *scenario.Scenario, app string) opener {
	return func(i int) (session, error) {
		s := &exchange{}
		switch app {
		case scenario.AppEcho:
			s.send = bytes.Repeat([]byte("x"), job.Payload)
			s.want = s.send
		case scenario.AppBuffers:
			s.send, s.buf = []byte("x"), make([]byte, job.Slices*job.Answer)
		case scenario.AppRESP:
			value := bytes.Repeat([]byte("v"), job.Payload)
			for n := range job.Pipeline / 2 {
				key := fmt.Sprintf("key:%08d:%03d", i, n) // which no other session has
				s.send = fmt.Appendf(s.send, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, len(value), value)
				s.send = fmt.Appendf(s.send, "*2\r\n$3\r\nGET\r\n$%d\r\n%s\r\n", len(key), key)
				s.want = fmt.Appendf(s.want, "+OK\r\n$%d\r\n%s\r\n", len(value), value)
			}
		}
		if s.want != nil {
			s.buf = make([]byte, len(s.want))
		}
		var err error
		s.conn, err = dial(job.Addr)
		return s, err
	}
}

func (s *exchange) op() error {
	if _, err := s.conn.Write(s.send); err != nil {
		return err
	}
	if _, err := io.ReadFull(s.conn, s.buf); err != nil {
		return fmt.Errorf("read answer: %w", unexpectedEOF(err))
	}
	if s.want != nil && !bytes.Equal(s.buf, s.want) {
		return errors.New("the answer isn't the one that it must be")
	}
	return nil
}

func (s *exchange) setDeadline(t time.Time) { s.conn.SetDeadline(t) }
func (s *exchange) close()                  { s.conn.Close() }
