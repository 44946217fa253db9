// Package webserver has the type of what an http.Server and an httpadapter.Server share,
// for programs and tests that run either.
package webserver

import (
	"context"
	"net"
)

// Server has the methods that an http.Server and an httpadapter.Server share.
type Server interface {
	Serve(l net.Listener) error
	ServeTLS(l net.Listener, certFile, keyFile string) error
	Shutdown(ctx context.Context) error
	Close() error
}
