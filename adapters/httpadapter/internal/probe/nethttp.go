package probe

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Three ways to wait are known. These are the calls of the first, as far as parking relies on them;
// net/http's calls while a handler runs don't matter:
//
//	StateNew
//	SetReadDeadline     the header's, if there is one
//	Read                ... until it has all of the header
//	SetReadDeadline     the request's, or none
//	SetWriteDeadline    if there is one
//	StateActive
//	Write               all of the answer
//	SetWriteDeadline    none
//	StateIdle
//	SetReadDeadline     the wait's, or none
//	Read                into a slice as long as the free part of the buffer, until there
//	                    are PeekBytes, and not at all if they are there
//	SetReadDeadline     the header's, or none
//	Read                ... and so on
//
// The others are from Go 1.28, which keeps no buffer for a waiting connection. Thrice sets the
// first of these deadlines, and Twice does not.
//
//	StateIdle
//	SetReadDeadline     the wait's, or none
//	SetReadDeadline     a short one, of less than soonMost
//	Read                as above. If it times out before there is a byte:
//	SetReadDeadline     the wait's, or none
//	Read                of one byte
//	Read                into the rest of a buffer that has this byte, until there are PeekBytes
//	SetReadDeadline     the header's, or none
//	Read                ... and so on
//
// If a Read of the wait without a byte before it, or the first Read of all, returns io.EOF: Close,
// StateClosed, and nothing else.

// NetHTTP returns how net/http waits in this process, or [Unknown] and the reason. The first call
// plays the scripts.
var NetHTTP = sync.OnceValues(playScripts)

// playScripts plays all scripts. It returns the way that net/http waited in all of them, or the
// first difference.
func playScripts() (Way, error) {
	var played []*scriptConn
	for _, l := range allLimits {
		conns := l.play()
		if _, err := commonWay(conns); err != nil {
			return Unknown, err
		}
		played = append(played, conns...)
	}
	return commonWay(played) // a call after the last one may have come by now
}

// commonWay returns the way that all connections agree with, or the first difference.
func commonWay(conns []*scriptConn) (Way, error) {
	for _, c := range conns {
		if err := c.err(); err != nil {
			return Unknown, err
		}
	}
	for _, way := range knownWays {
		if !slices.ContainsFunc(conns, func(c *scriptConn) bool { return !c.agrees(way) }) {
			return way, nil
		}
	}
	return Unknown, errors.New("some connections wait in another way than others")
}

// limits are the timeouts of an http.Server, in hours. They differ from each other, so that a
// deadline shows which timeout it comes from.
type limits struct{ idle, header, read, write time.Duration }

var allLimits = []limits{
	{},
	{idle: 2 * time.Hour},
	{header: 3 * time.Hour},
	{read: 4 * time.Hour},
	{write: 5 * time.Hour},
	{idle: 2 * time.Hour, header: 3 * time.Hour, read: 4 * time.Hour, write: 5 * time.Hour},
}

// A script is what a client sends on one connection, request by request. "|" marks where a Read
// finds no more bytes. pause stands for a Read that times out if its deadline is soon; otherwise
// there is no pause. After the last request Read returns io.EOF, as it does when a connection is
// about to be parked.
type script []string

const pause = "~"

const (
	getRequest = "GET / HTTP/1.1\r\nHost: probe\r\n\r\n"
	postHeader = "POST / HTTP/1.1\r\nHost: probe\r\n"
)

// The scripts are short if only some timeouts are set, and long if all or no timeouts are set.
var (
	silentScript = script{} // the connection ends before the first request

	shortScript = script{
		"|" + getRequest,
		"|" + getRequest,
		"|GET| / HTTP/1.1\r\nHost: probe\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: probe\r\n|\r\n",
		"|" + pause + "|" + getRequest,
		"|" + pause + "|G|ET / HTTP/1.1\r\nHost: probe\r\n\r\n",
	}

	// The connection ends after a pause.
	pausedScript = script{"|" + getRequest, "|" + pause}

	longScript = script{
		"|" + getRequest,
		"|" + getRequest,
		// Part of a request comes after the wait has begun.
		"|G|ET / HTTP/1.1\r\nHost: probe\r\n\r\n",
		"|GET| / HTTP/1.1\r\nHost: probe\r\n\r\n",
		"|GET |/ HTTP/1.1\r\nHost: probe\r\n\r\n",
		"|GET / HTTP/1.1\r\nHost: probe\r\n|\r\n",
		// Part of it comes together with the previous request. The rest must not be taken for a
		// request: after the last one it could be the body.
		"G|ET / HTTP/1.1\r\nHost: probe\r\n\r\n",
		"GET| / HTTP/1.1\r\nHost: probe\r\n\r\n",
		"GET |/ HTTP/1.1\r\nHost: probe\r\n\r\n",
		"GET / HTTP/1.1\r\n|Host: probe\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: probe\r\n|\r\n",
		postHeader + "Content-Length: 4\r\n|\r\nbody",
		// Bodies, read by the handler or by net/http, with an empty line after them.
		"|" + postHeader + "Content-Length: 0\r\n\r\n",
		"|\r\n|" + getRequest,
		"|" + postHeader + "Content-Length: 4\r\n\r\nbody",
		"|" + getRequest,
		postHeader + "Content-Length: 4\r\n\r\nbo|dy",
		"P|OST / HTTP/1.1\r\nHost: probe\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n",
		"|" + postHeader + "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n|body",
		"|HEAD / HTTP/1.1\r\nHost: probe\r\n\r\n",
		"|GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"|" + getRequest,
		// The wait begins with a pause.
		"|" + pause + "|" + getRequest,
		"|" + pause + "|GET| / HTTP/1.1\r\nHost: probe\r\n\r\n",
		"|" + pause + "|GET / HTTP/1.1\r\n|Host: probe\r\n\r\n",
		"|" + pause + "|" + postHeader + "Content-Length: 4\r\n\r\nbody",
		"|" + pause + "|\r\n|" + getRequest,
		"|" + pause,
	}
)

// play plays the scripts to an http.Server with these timeouts.
func (l limits) play() []*scriptConn {
	srv := &http.Server{
		Handler:           http.HandlerFunc(handler),
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnState:         connState,
		Protocols:         new(http.Protocols), // HTTP/1 only: HTTP/2 is not parked, and slow to set up
		IdleTimeout:       l.idle,
		ReadHeaderTimeout: l.header,
		ReadTimeout:       l.read,
		WriteTimeout:      l.write,
	}
	srv.Protocols.SetHTTP1(true)
	var conns []*scriptConn
	leases := &scriptListener{}
	plain := func(s script) {
		c := newScriptConn(s, s.alternatives(l, nil))
		conns, leases.conns = append(conns, c), append(leases.conns, &tcpConn{c})
	}
	overTLS := func(s script) {
		c := newScriptConn(s, append(s.alternatives(l, nil), s.alternatives(l, l.handshake())...))
		conns, leases.conns = append(conns, c), append(leases.conns, &tlsConn{c})
	}
	plain(silentScript)
	plain(pausedScript)
	plain(l.script())
	overTLS(silentScript)
	overTLS(pausedScript)
	overTLS(shortScript)
	_ = srv.Serve(leases) // returns when there are no more leases; the connections go on
	for _, c := range conns {
		c.await()
	}
	_ = srv.Close() // does not reach connections that it knows to be closed
	for _, c := range conns {
		c.end()
	}
	return conns
}

// script returns the long script if all timeouts are set, or no timeout is.
func (l limits) script() script {
	if (l.idle > 0) == (l.header > 0) && (l.header > 0) == (l.write > 0) {
		return longScript
	}
	return shortScript
}

func handler(rw http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Expect") != "" {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise net/http does it
	}
	_, _ = io.WriteString(rw, "answer")
}

func connState(nc net.Conn, state http.ConnState) {
	switch nc := nc.(type) {
	case *tcpConn:
		nc.told(state)
	case *tlsConn:
		nc.told(state)
	}
}

// handshake returns the deadlines that net/http sets for the handshake, from Go 1.27 on, if a
// connection has a ConnectionState. Here the handshake is already done.
func (l limits) handshake() []string {
	limit := time.Duration(0)
	for _, d := range []time.Duration{l.header, l.read, l.write} {
		if d > 0 && (limit == 0 || d < limit) {
			limit = d
		}
	}
	if limit == 0 {
		return nil
	}
	return []string{
		deadlineCall("Read", limit), deadlineCall("Write", limit),
		deadlineCall("Read", 0), deadlineCall("Write", 0),
	}
}

// expectation has the calls that parking relies on if net/http waits in a given way.
type expectation struct {
	way   Way
	calls []string
}

// alternatives returns what is expected for each known way. The first calls are those of a
// handshake.
func (s script) alternatives(l limits, handshake []string) (all []expectation) {
	for _, way := range knownWays {
		all = append(all, expectation{way, s.calls(l, way, handshake)})
	}
	return all
}

// calls returns the calls of one way.
func (s script) calls(l limits, way Way, handshake []string) []string {
	calls := append([]string{http.StateNew.String()}, handshake...)
	call := func(names ...string) { calls = append(calls, names...) }
	idle, header := l.idle, l.header
	if idle == 0 {
		idle = l.read
	}
	if header == 0 {
		header = l.read
	}
	pieces, ends := s.pieces()
	have := 0 // bytes of the request that net/http has
	read := func(name string) { call(name); have += len(pieces[0]); pieces = pieces[1:] }
	// wait adds the calls of a wait up to the Read of its first byte. It reports whether that Read
	// is among them, which is the case if a pause comes first and net/http notices it.
	wait := func() (read bool) {
		paused := len(pieces) > 0 && pieces[0] == pause
		if paused {
			pieces = pieces[1:]
		}
		if way != Twice {
			call(deadlineCall("Read", idle))
		}
		if way == Once {
			return false
		}
		if call(deadlineCall("Read", soon)); !paused {
			return false
		}
		call(readCall(ReadBytes), deadlineCall("Read", idle), readCall(1))
		if len(pieces) > 0 { // otherwise it finds the end
			have++
			if pieces[0] = pieces[0][1:]; pieces[0] == "" {
				pieces = pieces[1:]
			}
		}
		return true
	}
	begin := 0
	for i, end := range ends {
		switch {
		case i == 0 && header > 0:
			call(deadlineCall("Read", header))
		case i > 0:
			wait()
			for have < PeekBytes {
				read(readCall(ReadBytes - have))
			}
			call(deadlineCall("Read", header))
		}
		for have < end.header-begin {
			read("Read")
		}
		call(deadlineCall("Read", l.read))
		if l.write > 0 {
			call(deadlineCall("Write", l.write))
		}
		call(http.StateActive.String())
		for have < end.request-begin {
			read("Read")
			calls = calls[:len(calls)-1] // that is the body
		}
		have -= end.request - begin
		begin = end.request
		call("Write", deadlineCall("Write", 0), http.StateIdle.String())
	}
	if len(ends) > 0 {
		if !wait() {
			call(readCall(ReadBytes))
		}
	} else {
		if header > 0 {
			call(deadlineCall("Read", header))
		}
		call("Read")
		if l.write > 0 {
			call(deadlineCall("Write", l.write))
		}
	}
	call("Close", http.StateClosed.String())
	return calls
}

// ends says where a header and its request end in the stream.
type ends struct{ header, request int }

// pieces returns the bytes that each Read finds, and where the requests end.
func (s script) pieces() (pieces []string, all []ends) {
	stream := strings.Join(s, "")
	at := 0
	for _, request := range s {
		text := strings.NewReplacer("|", "", pause, "").Replace(request)
		if text == "" {
			continue // the end
		}
		all = append(all, ends{at + strings.Index(text, "\r\n\r\n") + len("\r\n\r\n"), at + len(text)})
		at += len(text)
	}
	if stream == "" {
		return nil, nil
	}
	return strings.Split(stream, "|")[1:], all
}
