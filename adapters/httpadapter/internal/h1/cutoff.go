//go:build go1.27

package h1

// These are true with Go 1.26: see there.
const (
	cutOffIsEnd = false
	endIsRead   = false
)
