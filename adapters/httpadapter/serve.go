package httpadapter

import (
	"errors"
	"net"
	"net/http"
	"runtime"
	"sync"
	"weak"
)

// Serve serves the connections of l with srv, as srv.Serve(l) would: it is Wrap(srv).Serve(l). It may be
// called for several listeners. Stop it with srv.Shutdown or srv.Close. For options, and for
// [Server.Drain], [Server.HandOver] and [Server.Stats], use [Wrap] and the Server that it returns.
func Serve(srv *http.Server, l net.Listener) error {
	if srv == nil {
		return errNilServer
	}
	return serverOf(srv).Serve(l)
}

// ServeTLS is [Serve] for TLS, as srv.ServeTLS(l, certFile, keyFile).
func ServeTLS(srv *http.Server, l net.Listener, certFile, keyFile string) error {
	if srv == nil {
		return errNilServer
	}
	return serverOf(srv).ServeTLS(l, certFile, keyFile)
}

var errNilServer = errors.New("httpadapter: Serve was called with a nil *http.Server")

// enrolled has the Server of each living http.Server. A Server replaces hooks of its http.Server, so a
// second Server would see the connections of the first as if they were net/http's.
//
// Both are weak: the http.Server's hooks keep its Server alive, so they end together.
var enrolled struct {
	sync.Mutex
	servers map[weak.Pointer[http.Server]]weak.Pointer[Server]
}

// serverOf returns the Server that Wrap has made for srv, or makes one.
func serverOf(srv *http.Server) *Server {
	enrolled.Lock()
	defer enrolled.Unlock()
	if s := enrolled.servers[weak.Make(srv)].Value(); s != nil {
		return s
	}
	s := newServer(srv, nil)
	enrollLocked(s)
	return s
}

func enroll(s *Server) {
	enrolled.Lock()
	defer enrolled.Unlock()
	enrollLocked(s)
}

func enrollLocked(s *Server) {
	if enrolled.servers == nil {
		enrolled.servers = make(map[weak.Pointer[http.Server]]weak.Pointer[Server])
	}
	key := weak.Make(s.srv)
	if _, known := enrolled.servers[key]; !known {
		runtime.AddCleanup(s.srv, forget, key)
	}
	enrolled.servers[key] = weak.Make(s)
}

func forget(key weak.Pointer[http.Server]) {
	enrolled.Lock()
	defer enrolled.Unlock()
	delete(enrolled.servers, key)
}
