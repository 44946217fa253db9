package testnet

import (
	"math/rand/v2"
	"regexp"
	"testing"
)

// Drawn returns the seed of a test that plays scripts: the one given, or a random one if that is 0.
func Drawn(t testing.TB, seed uint64) uint64 {
	t.Helper()
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return seed
}

// Shortened removes the middle of long fields.
func Shortened(text string) string { return runPattern.ReplaceAllString(text, "...") }

var runPattern = regexp.MustCompile(`l{50,}|b{50,}|(\\x00){50,}|\x00{50,}`)

// WithoutPorts removes the numbers of ports.
func WithoutPorts(text string) string { return portPattern.ReplaceAllString(text, ":port") }

var portPattern = regexp.MustCompile(`:[0-9]{4,5}\b`)
