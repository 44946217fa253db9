package testnet

import (
	"net"
	"sync"
	"testing"
)

// A Server calls a function of the test's for each connection.
type Server struct {
	net.Listener

	mu       sync.Mutex
	accepted int
	open     map[net.Conn]bool
	ended    bool // End was called

	serving sync.WaitGroup
}

// Serve calls serve for each connection to ln, on a goroutine of its own, and closes the connection when
// that returns. The server is closed when the test ends.
func Serve(t testing.TB, ln net.Listener, serve func(c net.Conn)) *Server {
	s := &Server{Listener: ln, open: make(map[net.Conn]bool)}
	s.serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.accepted++
			s.open[c] = true
			if s.ended {
				c.Close()
			}
			s.mu.Unlock()
			s.serving.Go(func() {
				serve(c)
				c.Close()
				s.mu.Lock()
				delete(s.open, c)
				s.mu.Unlock()
			})
		}
	})
	t.Cleanup(s.End)
	return s
}

// Accepted returns how many connections the server has got.
func (s *Server) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// Open returns how many of them have not ended.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Await closes the listener, and waits until all connections have ended.
func (s *Server) Await() {
	s.Close()
	s.serving.Wait()
}

// End closes the listener and all connections, and waits for their goroutines. It may be called again.
func (s *Server) End() {
	s.Close()
	s.mu.Lock()
	s.ended = true
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.Await()
}
