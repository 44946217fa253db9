//go:build race

package pool_test

// raceEnabled: sync.Pool drops a quarter of what it is given, at random, under the
// race detector, so hits can't be counted on.
const raceEnabled = true
