package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// broadcastSession has many connections. It sends a message, and reads it from all clients.
type broadcastSession struct {
	conns   []net.Conn   // the clients', and more that send may need
	clients int          // how many there are
	msg     []byte       // as each client gets it
	send    func() error // sends it
	waiting atomic.Int64 // clients that have not received the message
	all     chan error   // nil when the last one has; an error that ends the session
}

// broadcastOpener returns sessions that share the job's connections.
func broadcastOpener(job Job) (opener, error) {
	if job.Payload <= 0 || job.workers() > job.Conns {
		return nil, errors.New("a broadcast needs a payload, and a connection for each caller")
	}
	payload := bytes.Repeat([]byte("x"), job.Payload)
	return func(int) (session, error) {
		n := job.Conns / job.workers()
		s := &broadcastSession{conns: make([]net.Conn, n), clients: n, all: make(chan error, n+1)}
		prepare := s.openPlain
		if job.Kind == KindEvents {
			prepare = s.openEvents
		}
		if err := prepare(job, payload); err != nil {
			s.close()
			return nil, err
		}
		return s, nil
	}, nil
}

// openPlain opens the connections of KindBroadcast.
func (s *broadcastSession) openPlain(job Job, payload []byte) error {
	s.msg = payload
	s.send = func() error {
		_, err := s.conns[0].Write(s.msg)
		return err
	}
	return s.connect(func() (net.Conn, io.Reader, error) {
		c, err := join(job.Addr)
		return c, c, err
	})
}

// openEvents opens the connections of KindEvents, and one for the requests that send.
func (s *broadcastSession) openEvents(job Job, payload []byte) error {
	s.msg = slices.Concat([]byte("data: "), payload, []byte("\n\n"))
	c, err := dial(job.Addr)
	if err != nil {
		return err
	}
	s.conns = append(s.conns, c)
	s.send = (&httpSession{conn: c, req: request(job, "")}).op
	job.Payload = 0
	get := request(job, "Accept: text/event-stream\r\n")
	return s.connect(func() (net.Conn, io.Reader, error) { return joinEvents(job.Addr, get) })
}

// connect opens the clients' connections, a few at a time, and receives from what open returns with
// each.
func (s *broadcastSession) connect(open func() (net.Conn, io.Reader, error)) error {
	from := make([]io.Reader, s.clients)
	err := parallel(s.clients, func(i int) error {
		c, r, err := open()
		if err != nil {
			return fmt.Errorf("join the broadcast: %w", err)
		}
		c.SetDeadline(time.Time{})
		s.conns[i], from[i] = c, r
		return nil
	})
	if err != nil {
		return err
	}
	for _, r := range from {
		go s.receive(r)
	}
	return nil
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
	}
	return c, err
}

// eventBuffer is the size of a client's buffer: there are thousands.
const eventBuffer = 512

// joinEvents connects, and returns when the server has the client in its list: its first event has come.
// The events that follow come from the reader.
func joinEvents(addr string, get []byte) (net.Conn, io.Reader, error) {
	c, err := dial(addr)
	if err != nil {
		return nil, nil, err
	}
	c.SetDeadline(time.Now().Add(dialTimeout))
	events, err := firstEvent(c, get)
	if err != nil {
		c.Close()
	}
	return c, events, err
}

// firstEvent makes the request of joinEvents.
func firstEvent(c net.Conn, get []byte) (io.Reader, error) {
	if _, err := c.Write(get); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, eventBuffer), nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("unexpected answer %s", resp.Status)
	}
	for last, b := byte(0), make([]byte, 1); ; last = b[0] {
		if _, err := io.ReadFull(resp.Body, b); err != nil {
			return nil, unexpectedEOF(err)
		}
		if last == '\n' && b[0] == '\n' {
			return resp.Body, nil
		}
	}
}

// receive reads messages from one client's connection until that fails.
func (s *broadcastSession) receive(r io.Reader) {
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

func (s *broadcastSession) op() error {
	s.waiting.Store(int64(s.clients))
	if err := s.send(); err != nil {
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
