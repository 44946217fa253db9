//go:build !race

package zerocopy

// raceEnabled says whether the race detector is watching, which makes everything
// many times slower.
const raceEnabled = false
