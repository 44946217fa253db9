//go:build !percore_net

package httpadapter

// canPark says that connections can wait without a goroutine.
const canPark = true
