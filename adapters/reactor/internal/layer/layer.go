// Package layer gives package reactortls what package reactor has for it, and doesn't export.
package layer

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/percore/percore/internal/tlsread"
)

// Handshakes says how accepted connections get their TLS.
type Handshakes struct {
	Config  *tls.Config
	Timeout time.Duration
	Max     int   // under way at a time
	Err     error // what is wrong with the rest, for reactor.New
}

// The functions of package reactor.
var (
	// TLS returns a *reactor.TLS.
	TLS func(Handshakes) any

	// Wrap returns a connection for a *tls.Conn that Attach is to take. It first reads what is buffered.
	Wrap func(conn net.Conn, buffered []byte) net.Conn

	// Of returns the *tls.Conn of a *reactor.Conn, or nil if it has none.
	Of func(conn any) *tls.Conn
)

// Check is a variable for tests.
var Check = tlsread.Probe
