//go:build !go1.27

package http2

// See versions.go.
const (
	badLengthResets  = false
	tlsWithAnyScheme = false
	rootedPath       = false
)
