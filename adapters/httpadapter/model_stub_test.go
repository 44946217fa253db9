//go:build !linux || percore_net

package httpadapter

// startMoving is for platforms on which nothing moves.
func (pf *performance) startMoving(*stage) (stop func()) { return func() {} }
