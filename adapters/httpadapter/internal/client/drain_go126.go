//go:build !go1.27

package client

// See drain.go.
const (
	drains            = false
	keepsAfterConnect = true
)
