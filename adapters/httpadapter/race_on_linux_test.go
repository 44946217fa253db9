//go:build race && !percore_net

package httpadapter

// raceEnabled says that the race detector is watching. It makes sync.Pool
// forget things at random, so that allocations can't be counted.
const raceEnabled = true
