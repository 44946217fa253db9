// Package http2 has the type that httpadapter's NewTransport returns. The type handles HTTP/1.1 as
// well as HTTP/2; the package has this name because http.Client knows it.
//
// An http.Client with a Timeout sets a deadline for the request's context. If its http.RoundTripper
// may not know contexts, it also starts a goroutine and a timer for each request, and sets
// Request.Cancel, which takes the RoundTripper another goroutine to watch. It assumes that any type
// called *http2.Transport knows contexts (see knownRoundTripperImpl in net/http). A Client that
// doesn't assume so works too, with more CPU time per request.
package http2

import (
	"errors"
	"net/http"

	"github.com/percore/percore/adapters/httpadapter/internal/client"
)

// A Transport is an http.RoundTripper that calls servers on percore's connections. Package httpadapter
// also calls it Transport, and makes it: its NewTransport says which requests it serves itself. All
// methods are safe for concurrent use.
type Transport struct {
	t *client.Transport
}

// New is NewTransport of package httpadapter for a base that is not nil.
func New(base *http.Transport) *Transport {
	if base == nil {
		panic("http2: New was called with a nil *http.Transport: call httpadapter.NewTransport")
	}
	return &Transport{client.New(base)}
}

// RoundTrip implements [http.RoundTripper]. It blocks until the header of the answer has come, or the
// request's context ends. Until the answer's body is closed, or read to its end, a connection of
// HTTP/1.1 or a stream of HTTP/2 belongs to it.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req == nil {
		return nil, errors.New("httpadapter: RoundTrip was called with a nil *http.Request")
	}
	return t.t.RoundTrip(req)
}

// CloseIdleConnections closes the connections that wait for a request, including those of the base. It
// doesn't wait.
func (t *Transport) CloseIdleConnections() { t.t.CloseIdleConnections() }

// Stats returns the counters of the transport's connections and requests. It doesn't block.
func (t *Transport) Stats() Stats { return Stats(t.t.Stats()) }

// Stats are the counters of a Transport. They are read one after the other, not at one instant.
type Stats struct {
	Conns   int // connections that are open, without those that have switched protocols
	Idle    int // of these, waiting for a request, or over HTTP/2 without streams; the others are busy
	Dialing int // connections that are being dialed, with their TLS handshakes
	Waiting int // calls that wait for a connection

	// Unanswered is how many calls have a connection and wait for the header of their answer. Divided by
	// the number of requests that begin in a second, it is how many seconds servers take to answer, on
	// average.
	Unanswered int

	Requests uint64 // requests that it has served itself
	Reused   uint64 // times that a request was sent on a connection that had another before
	Retried  uint64 // times that a request was sent again, since its connection had just ended

	// Declined counts the requests that were left to the base, by reason: NewTransport of package
	// httpadapter explains each. Reasons that did not occur are missing.
	Declined map[string]uint64
}
