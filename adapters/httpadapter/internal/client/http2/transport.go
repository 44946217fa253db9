// Package http2 gives httpadapter's Transport a name that http.Client knows.
//
// An http.Client with a Timeout sets a deadline for the request's context. For an http.RoundTripper that
// may not know contexts it also starts a goroutine and a timer for each request, and sets
// Request.Cancel, which the RoundTripper needs another goroutine to watch. It takes any type that is
// called *http2.Transport for one that knows contexts (see knownRoundTripperImpl in net/http). A Client
// that doesn't is served as well, for more CPU time per request.
package http2

import (
	"errors"
	"net/http"

	"github.com/percore/percore/adapters/httpadapter/internal/client"
)

// Transport is an http.RoundTripper. See NewTransport of package httpadapter.
type Transport struct {
	t *client.Transport
}

// Stats are the counters of a Transport.
type Stats = client.Stats

// New returns a Transport with the settings of base.
func New(base *http.Transport) *Transport { return &Transport{client.New(base)} }

// RoundTrip implements [http.RoundTripper]. It blocks until the header of the answer has come, or the
// request's context ends.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req == nil {
		return nil, errors.New("httpadapter: RoundTrip was called with a nil *http.Request")
	}
	return t.t.RoundTrip(req)
}

// Stats returns the counters of the transport's connections and requests. It doesn't block.
func (t *Transport) Stats() Stats { return t.t.Stats() }

// CloseIdleConnections closes the connections that wait for a request, those of the base as well.
func (t *Transport) CloseIdleConnections() { t.t.CloseIdleConnections() }
