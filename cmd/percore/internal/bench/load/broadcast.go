package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// broadcast has many connections. It sends a message, and reads it from all clients.
type broadcast struct {
	conns   []net.Conn
	clients int          // how many of them get the messages
	msg     []byte       // as each client gets it
	send    func() error // sends it
	waiting atomic.Int64 // clients that have not received the message
	all     chan error   // nil when the last one has; an error that ends the session
}

// broadcasts returns sessions that share the job's connections.
func broadcasts(job *scenario.Job) opener {
	return func(int) (session, error) {
		s := &broadcast{clients: job.Conns / job.Workers()}
		s.conns, s.all = make([]net.Conn, s.clients), make(chan error, s.clients+1)
		open := s.openPlain
		if job.App == scenario.AppEvents {
			open = s.openEvents
		}
		if err := open(*job, bytes.Repeat([]byte("x"), job.Payload)); err != nil {
			s.close()
			return nil, fmt.Errorf("join the broadcast: %w", err)
		}
		return s, nil
	}
}

// openPlain opens the connections of AppBroadcast. The server has a client in its list when it has sent
// the client's greeting back.
func (s *broadcast) openPlain(job scenario.Job, payload []byte) error {
	s.msg = payload
	s.send = func() error {
		_, err := s.conns[0].Write(s.msg)
		return err
	}
	return s.join(job.Addr, make([]byte, scenario.Greeting), func(c net.Conn) (io.Reader, error) {
		_, err := io.ReadFull(c, make([]byte, scenario.Greeting))
		return c, err
	})
}

// eventBuffer is the size of a client's buffer: there are thousands.
const eventBuffer = 512

// openEvents opens the connections of AppEvents, and one for the requests that send. The server has a
// client in its list when its first event has come.
func (s *broadcast) openEvents(job scenario.Job, payload []byte) error {
	s.msg = fmt.Appendf(nil, "data: %s\n\n", payload)
	sender, err := httpSessions(&job)(0)
	if err != nil {
		return err
	}
	s.conns, s.send = append(s.conns, sender.(*httpSession).conn), sender.op
	get := job
	get.Payload = 0
	return s.join(job.Addr, request(&get, "Accept: text/event-stream\r\n"), func(c net.Conn) (io.Reader, error) {
		resp, err := http.ReadResponse(bufio.NewReaderSize(c, eventBuffer), nil)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("unexpected answer %s", resp.Status)
		}
		for last, b := byte(0), make([]byte, 1); ; last = b[0] {
			if _, err := io.ReadFull(resp.Body, b); err != nil || last == '\n' && b[0] == '\n' {
				return resp.Body, unexpectedEOF(err)
			}
		}
	})
}

// join opens the clients' connections, a few at a time, and sends hello on each. When joined has
// returned for all, it receives from what that has returned.
func (s *broadcast) join(addr string, hello []byte, joined func(net.Conn) (io.Reader, error)) error {
	from := make([]io.Reader, s.clients)
	err := parallel(s.clients, func(i int) error {
		c, err := dial(addr)
		if err != nil {
			return err
		}
		s.conns[i] = c
		c.SetDeadline(time.Now().Add(dialTimeout))
		if _, err := c.Write(hello); err != nil {
			return err
		}
		from[i], err = joined(c)
		c.SetDeadline(time.Time{})
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range from {
		go s.receive(r)
	}
	return nil
}

// receive reads messages from one client's connection until that fails.
func (s *broadcast) receive(r io.Reader) {
	buf := make([]byte, len(s.msg))
	for {
		if _, err := io.ReadFull(r, buf); err != nil {
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
	s.waiting.Store(int64(s.clients))
	if err := s.send(); err != nil {
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
