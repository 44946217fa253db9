package monotime_test

import (
	"math"
	"testing"
	"time"

	. "github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestOf(t *testing.T) {
	const day = int64(24 * time.Hour)
	before := Now()
	for name, tt := range map[string]struct {
		t        time.Time
		min, max int64
	}{
		"1970":                           {time.Unix(0, 0), 1, 1},
		"290 million years ago":          {time.Date(-290_000_000, 1, 1, 0, 0, 0, 0, time.UTC), 1, 1},
		"before the clock began":         {time.Now().Add(-time.Duration(Now()) - time.Hour), 1, 1},
		"tomorrow":                       {time.Now().Add(24 * time.Hour), before + day, before + day + int64(time.Hour)},
		"tomorrow by the wall clock":     {time.Now().Add(24 * time.Hour).Round(0), before + day - int64(time.Second), before + day + int64(time.Hour)},
		"in 10,000 years":                {time.Now().AddDate(10_000, 0, 0), math.MaxInt64, math.MaxInt64},
		"the end of time":                {time.Unix(1<<62, 0), math.MaxInt64, math.MaxInt64},
		"in 292 years":                   {time.Now().Add(math.MaxInt64), math.MaxInt64 - day, math.MaxInt64},
		"in 291 years, with the reading": {time.Now().Add(math.MaxInt64 - time.Duration(365*day)), math.MaxInt64 - 366*day, math.MaxInt64 - 364*day},
	} {
		if got, _ := Of(tt.t); got < tt.min || got > tt.max {
			t.Errorf("%s: got %d, want from %d to %d", name, got, tt.min, tt.max)
		}
	}
}

func TestAfter(t *testing.T) {
	if before, got := Now(), After(time.Hour); got < before+int64(time.Hour) || got > Now()+int64(time.Hour) {
		t.Errorf("an hour from %d: got %d", before, got)
	}
	if got := After(math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("the longest there is: got %d, want %d", got, int64(math.MaxInt64))
	}
	if got := After(math.MinInt64); got != 1 {
		t.Errorf("the longest ago: got %d, want 1", got)
	}
}

func TestTime(t *testing.T) {
	for _, at := range []int64{1, Now(), After(time.Hour), int64(100 * 365 * 24 * time.Hour)} {
		if got, _ := Of(Time(at)); got != at {
			t.Errorf("there and back: got %d, want %d", got, at)
		}
	}
	if early := time.Now().AddDate(291, 0, 0); !Time(math.MaxInt64).After(early) {
		t.Errorf("the end of time is %v", Time(math.MaxInt64))
	}
}
