//go:build !linux

package target

import "errors"

// newNginxServer needs /proc.
func newNginxServer(Spec) (server, error) { return nil, errors.ErrUnsupported }
