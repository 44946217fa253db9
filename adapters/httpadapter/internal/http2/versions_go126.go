//go:build !go1.27

package http2

// See versions.go.
const (
	lengthWithoutResets = false
	rootedPath          = false
)
