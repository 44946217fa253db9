//go:build !linux

package target

import "errors"

// newNginxServer needs /proc.
func newNginxServer() (server, error) { return nil, errors.ErrUnsupported }
