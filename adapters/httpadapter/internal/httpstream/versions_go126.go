//go:build !go1.27

package httpstream

// See versions.go.
const (
	badLengthResets  = false
	tlsWithAnyScheme = false
	rootedPath       = false
)
