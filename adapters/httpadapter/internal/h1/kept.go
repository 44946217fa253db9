package h1

import "github.com/percore/percore/adapters/httpadapter/internal/http1"

// kept has the bytes that were read from a connection that waits: the beginning of a header, or what
// followed a request whose answer is detached. Most connections have none.
type kept struct {
	bytes []byte // the connection's own
	odd   oddHeader
	dated bool // the deadline for the header was set
}

// oddHeader is how far the odd header at the start of a turn's buffer was looked at.
type oddHeader struct {
	http1.Beginning
	why    http1.Verdict // Incomplete: the header is not known to be odd
	pieces bool          // net/http would have read more than once, so that the connection is active even if it is refused
}
