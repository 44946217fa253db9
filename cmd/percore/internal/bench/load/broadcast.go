package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// broadcastSession has many connections. It sends a message on the first, and reads it from all.
type broadcastSession struct {
	conns   []net.Conn
	msg     []byte
	waiting atomic.Int64 // connections that have not received the message
	all     chan error   // nil when the last one has; an error that ends the session
}

// broadcastOpener returns sessions that share the job's connections.
func broadcastOpener(job Job) (opener, error) {
	if job.Payload <= 0 || job.workers() > job.Conns {
		return nil, errors.New("a broadcast needs a payload, and a connection for each caller")
	}
	msg := bytes.Repeat([]byte("x"), job.Payload)
	return func(int) (session, error) {
		s := &broadcastSession{msg: msg, conns: make([]net.Conn, job.Conns/job.workers())}
		s.all = make(chan error, len(s.conns)+1)
		err := parallel(len(s.conns), func(i int) (err error) {
			s.conns[i], err = join(job.Addr)
			return err
		})
		if err != nil {
			s.close()
			return nil, err
		}
		for _, c := range s.conns {
			go s.receive(c)
		}
		return s, nil
	}, nil
}

// join connects, and returns when the server has the connection in its list: it has sent a message of
// one byte back.
func join(addr string) (net.Conn, error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(dialTimeout))
	greeting := []byte{'h'}
	if _, err = c.Write(greeting); err == nil {
		_, err = io.ReadFull(c, greeting)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("join the broadcast: %w", err)
	}
	c.SetDeadline(time.Time{})
	return c, nil
}

// receive reads messages from one connection until that fails.
func (s *broadcastSession) receive(c net.Conn) {
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

func (s *broadcastSession) op() error {
	s.waiting.Store(int64(len(s.conns)))
	if _, err := s.conns[0].Write(s.msg); err != nil {
		return err
	}
	return <-s.all
}

func (s *broadcastSession) setDeadline(t time.Time) {
	for _, c := range s.conns {
		c.SetDeadline(t)
	}
}

func (s *broadcastSession) close() {
	for _, c := range s.conns {
		if c != nil {
			c.Close()
		}
	}
}
