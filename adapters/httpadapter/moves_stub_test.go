//go:build !linux || percore_net

package httpadapter

// startMoving is for platforms on which nothing moves.
func (*side) startMoving(moves) (stop func()) { return func() {} }
