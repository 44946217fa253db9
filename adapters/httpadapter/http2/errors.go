package http2

import "errors"

// Errors that users see, with net/http's texts.
var (
	errRequestCanceledConn = errors.New("net/http: request canceled while waiting for connection")
	errNoConn              = errors.New("net/http: Transport.DialContext hook returned (nil, nil)")
	errNoConnTLS           = errors.New("net/http: Transport.DialTLS or DialTLSContext returned (nil, nil)")
)
