package monotime_test

import (
	"testing"
	"testing/synctest"
	"time"

	. "github.com/percore/percore/internal/monotime"
)

// The clock is the same on both sides of a bubble's border, and distances are the bubble's.
func TestBubble(t *testing.T) {
	outside := time.Now().Add(time.Hour)
	before := Now()
	synctest.Test(t, func(t *testing.T) {
		if !InBubble() {
			t.Error("InBubble: got false inside")
		}
		time.Sleep(10 * 365 * 24 * time.Hour) // takes no time outside
		now := Now()
		if now < before || now > before+int64(time.Hour) {
			t.Errorf("got %d inside after %d outside", now, before)
		}
		if at, passed := Of(time.Now().Add(time.Hour)); passed || at < now+int64(time.Hour) || at > Now()+int64(time.Hour) {
			t.Errorf("in an hour: got %d, %t at %d", at, passed, now)
		}
		if at, passed := Of(time.Now()); !passed || at > Now() {
			t.Errorf("now: got %d, %t at %d, want it to have passed", at, passed, now)
		}
		// Package net would wait until the bubble's clock gets there.
		if at, passed := Of(outside); passed || at < now+int64(10*365*24*time.Hour) {
			t.Errorf("a time of outside: got %d, %t at %d", at, passed, now)
		}
		before = now
		local := Local()
		time.Sleep(time.Hour)
		if passed := Local() - local; local <= 0 || passed != int64(time.Hour) {
			t.Errorf("Local: got %d and %d more after an hour of the bubble", local, passed)
		}
		if at := LocalTime(Local()); !at.Equal(time.Now()) {
			t.Errorf("LocalTime: got %v at %v", at, time.Now())
		}
	})
	if local, now := Local(), Now(); local > now || local < now-int64(time.Minute) || !LocalTime(now).Equal(Time(now)) {
		t.Errorf("Local: got %d outside, want %d", local, now)
	}
	if InBubble() {
		t.Error("InBubble: got true outside")
	}
	// The clock in a bubble is ahead by as long as the process was held up when it began to run: see ahead.
	if now := Now(); now < before-int64(time.Minute) {
		t.Errorf("got %d outside after %d inside", now, before)
	}
	if at, passed := Of(time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC)); !passed {
		t.Errorf("a time of a bubble, outside: got %d, want it to have passed", at)
	}
}
