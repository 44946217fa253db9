package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// broadcast has many connections. It sends a message on the first, and reads it from all.
type broadcast struct {
	conns   []net.Conn
	msg     []byte
	waiting atomic.Int64 // connections that have not received the message
	all     chan error   // nil when the last one has; an error that ends the session
}

func broadcasts(job *scenario.Scenario) opener {
	return func(int) (session, error) {
		s := &broadcast{
			conns: make([]net.Conn, job.Conns), msg: bytes.Repeat([]byte("x"), job.Payload),
			all: make(chan error, job.Conns+1),
		}
		err := parallel(len(s.conns), func(i int) (err error) {
			if s.conns[i], err = dial(job.Addr); err != nil {
				return err
			}
			return greet(s.conns[i])
		})
		if err != nil {
			s.close()
			return nil, fmt.Errorf("join the broadcast: %w", err)
		}
		for _, c := range s.conns {
			go s.receive(c)
		}
		return s, nil
	}
}

// greet returns when the server has a connection in its list, since it has sent the greeting back.
func greet(c net.Conn) error {
	c.SetDeadline(time.Now().Add(dialTimeout))
	defer c.SetDeadline(time.Time{})
	hello := make([]byte, scenario.Greeting)
	if _, err := c.Write(hello); err != nil {
		return err
	}
	_, err := io.ReadFull(c, hello)
	return err
}

func (s *broadcast) receive(c net.Conn) {
	buf := make([]byte, len(s.msg))
	for {
		if _, err := io.ReadFull(c, buf); err != nil {
			s.all <- fmt.Errorf("read broadcast: %w", unexpectedEOF(err))
			return
		}
		if !bytes.Equal(buf, s.msg) {
			s.all <- errors.New("the broadcast differs from what was sent")
			return
		}
		if s.waiting.Add(-1) == 0 {
			s.all <- nil
		}
	}
}

func (s *broadcast) op() error {
	s.waiting.Store(int64(len(s.conns)))
	if _, err := s.conns[0].Write(s.msg); err != nil {
		return err
	}
	return <-s.all
}

func (s *broadcast) setDeadline(t time.Time) {
	for _, c := range s.conns {
		c.SetDeadline(t)
	}
}

func (s *broadcast) close() {
	for _, c := range s.conns {
		if c != nil {
			c.Close()
		}
	}
}
