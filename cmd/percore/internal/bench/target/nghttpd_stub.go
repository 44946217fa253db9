//go:build !linux

package target

import "errors"

// newNghttpdServer needs /proc.
func newNghttpdServer(Spec) (server, error) { return nil, errors.ErrUnsupported }
