package pool

import "errors"

// Errors of Put, with net/http's texts. The hook PutIdleConn gets them.
var (
	ErrKeepAlivesDisabled = errors.New("http: putIdleConn: keep alives disabled")

	errConnBroken      = errors.New("http: putIdleConn: connection is in bad state")
	errCloseIdle       = errors.New("http: putIdleConn: CloseIdleConnections was called")
	errTooManyIdleHost = errors.New("http: putIdleConn: too many idle connections for host")
)
