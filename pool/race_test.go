package pool_test

import "github.com/percore/percore/internal/race"

// raceEnabled: sync.Pool drops values at random under the race detector, so hits can't
// be counted on.
const raceEnabled = race.Enabled
