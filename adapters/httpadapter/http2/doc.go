// Package http2 has the type that httpadapter's NewTransport returns. The type handles HTTP/1.1 as
// well as HTTP/2; the package has this name because http.Client knows it.
//
// An http.Client with a Timeout sets a deadline for the request's context. If its http.RoundTripper
// may not know contexts, it also starts a goroutine and a timer for each request, and sets
// Request.Cancel, which takes the RoundTripper another goroutine to watch. It assumes that any type
// called *http2.Transport knows contexts (see knownRoundTripperImpl in net/http). A Client that
// doesn't assume so works too, with more CPU time per request.
package http2

// This package is an HTTP/1.1 and HTTP/2 client on percore's connections. http.Transport is its
// specification, and does everything that the package doesn't do itself.
//
//	RoundTrip ──► served? ─► idle connection, or dial ──► write, wait, parse ──► *http.Response
//	                │ no
//	                ▼
//	          http.Transport
//
// # Packages
//
//	call, dial      what http.Transport does with a request, and which of its protocols it goes over
//	├── exchange    a request and its answer over HTTP/1.1
//	├── streams     the same over HTTP/2, above package h2
//	├── pool        connections, and calls that wait for one; knows no protocol
//	├── request     the request itself: what both protocols need of it
//	└── link        what bytes go over: in clear or TLS, watched while it is idle
//
// # No goroutine
//
// The caller does the work: RoundTrip takes an idle connection, writes the request, waits for the
// answer and parses it. Reading the answer's body to its end gives the connection back. An idle
// connection has a callback armed, and holds neither a goroutine nor a buffer. If the server ends it,
// or sends a byte without a request, it leaves the pool before a call gets it. Goroutines are needed
// to dial; to send bodies that are long, not in memory or not asked for yet; to watch the channel
// Request.Cancel; and, for a moment, to look at what has come on an idle TLS connection.
//
// # No byte of one answer in another
//
// A connection is used again only if the message says where the answer ends, all of it has been read,
// nothing is left in the buffer or in crypto/tls, and the call wasn't cancelled. The kernel is asked
// once more before the next request. In doubt the connection is closed. The buffer serves the next
// request only if no read for the last one is still running.
//
// # HTTP/2
//
// Package h2 owns a connection on which HTTP/2 was negotiated, and any number of calls share it. A
// call opens a stream, sends its header, with the body if that is short, and waits; other bodies are
// uploads. The stream ends with the answer and the upload, so no stream outlives its call.
//
// # Nothing is decided twice
//
// A request outside a plain subset goes to the http.Transport before anything has happened.
// http.ReadResponse, which knows every odd rule, reads answers outside the subset of package http1.
