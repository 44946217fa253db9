//go:build go1.27

package client

const (
	// drains says whether closing a body reads what is left of it, if that is little, as in net/http
	// since Go 1.27, so that the connection can be used again.
	drains = true

	// keepsAfterConnect says whether a connection may be used again after a CONNECT, as in net/http before
	// Go 1.27. The server may have made a tunnel of it.
	keepsAfterConnect = false
)
