//go:build !linux || percore_net

package httpadapter

// canPark says that connections can't wait without a goroutine: they are package
// net's, and all of them are served unparked.
const canPark = false
