//go:build !race

package conformance

// raceEnabled says that the race detector is watching, which makes everything
// slower and heavier.
const raceEnabled = false
