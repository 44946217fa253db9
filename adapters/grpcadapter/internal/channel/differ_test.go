package channel

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// scripts are played on grpc-go's channel and on ours.
var scripts = map[string]string{
	"connect":      "update 1.1.1.1:1\nconnect\ncall 1s",
	"call":         "update a\ncall 1s\nbreak a\ncall 1s\ndrain a\nsleep 1s\ncall 1s",
	"fails":        "host a fail\nupdate a\ncall 1s\nsleep 1500ms\nwait 1s\nhost a ok\nwait 10s\nclose\ncall 1s",
	"hangs":        "host a hang\nupdate a\ncall 1s\nwait 1s\nsleep 40s\nwait 1s\ncall 1s",
	"no resolver":  "call 1s\nreport broken\ncall 1s\nwait 1s\nupdate a\ncall 1s\nreport broken\ncall 1s",
	"happy":        "host 1.1.1.1:1 hang\nhost 1.1.1.2:1 hang\nupdate 1.1.1.1:1 1.1.1.2:1 [::1]:1 [::2]:1 name:1\ncall 9s",
	"all fail":     "host a fail\nhost b fail\nhost c hang\nupdate a b c\ncall 9s\nsleep 30s\nhost b ok\nwait 90s",
	"none":         "update\ncall 1s\nupdate a\ncall 1s\nupdate\ncall 1s\nwait 1s\nupdate b\ncall 1s",
	"removal":      "update a b\ncall 1s\nupdate b\ncall 1s\nupdate a b\ncall 1s\nbreak b\ncall 1s",
	"endpoints":    "host a fail\nendpoints a,b c,d\ncall 1s\nsleep 5s\nbreak b\ncall 1s\nbreak c\nsleep 3s\ncall 1s",
	"idle":         "update a\ncall 1s\nsleep 9m59s\ncall 1s\nsleep 9m59s\nsleep 2s\ncall 1s\nsleep 10m1s\nconnect",
	"wrong config": "config\ncall 1s\nwait 1s\nupdate a\ncall 1s\nconfig\ncall 1s",
	"reset":        "host a fail\nupdate a\ncall 1s\nsleep 9s\nreset\nsleep 3s\nhost a ok\nreset\ncall 1s",
	"sticky": "host a hang\nhost b fail\nupdate a b\nconnect\nsleep 9.1s\nhost b hang\nupdate a b c\n" +
		"sleep 300ms\nsleep 300ms",
	"second pass":   "host a hang\nhost c fail\nupdate a\nconnect\nsleep 6.1s\nupdate a c\nsleep 1s\ncall 9s\ncall 1s",
	"count":         "host a fail\nhost b fail\nupdate a b\ncall 1s\nsleep 1000ms\nupdate b a\nsleep 600ms\n" + poll(9),
	"base delay":    "host a fail\nupdate a\ncall 1s\nsleep 5s\nhost a ok\nwait 9s\nhost a fail\nbreak a\ncall 1s\nsleep 3s",
	"late config":   "connect\nreport x\nconfig\ncall 1s\nupdate a\ncall 1s",
	"replaced":      "update a\ncall 1s\nhost b slow\npolicy round_robin b\ncall 1s\nsleep 1s\ncall 1s\nbreak a\ncall 1s",
	"replaced soon": "update a\ncall 1s\nhost b slow\npolicy round_robin b\ncall 1s\nbreak a\nsleep 1s\ncall 1s",
	"back again":    "update a\ncall 1s\nhost b hang\npolicy round_robin b\npolicy pick_first a\ncall 1s\nclose",
	"reset two":     "host a fail\nhost b hang\nendpoints a,b c\nhost c fail\ncall 1s\nsleep 9s\nreset\nsleep 3s\nreset\ncall 1s",
	"closed":        "update a\nconnect\nclose\nclose\ncall 1s\nconnect\nreset\nupdate b\nreport x",
	"close hanging": "host a hang\nupdate a\nconnect\nclose",
	"close backoff": "host a fail\nupdate a\nconnect\nclose",
}

// poll makes calls in the course of time.
func poll(n int) string { return strings.Repeat("call 1s\nsleep 300ms\n", n) }

func TestScripts(t *testing.T) {
	for name, script := range scripts {
		for _, policy := range []string{"pick_first", "round_robin"} {
			t.Run(name+"/"+policy, func(t *testing.T) { differ(t, policy, script) })
		}
	}
}

func differ(t *testing.T, policy, script string) {
	t.Helper()
	if want, got := run(t, true, policy, script), run(t, false, policy, script); got != want {
		t.Error(difference(want, got))
	}
}

// difference shows where two logs begin to differ.
func difference(want, got string) string {
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < min(len(wants), len(gots)) && wants[i] == gots[i] {
		i++
	}
	return fmt.Sprintf("the same for grpc-go and us:\n%s\n\ngrpc-go goes on:\n%s\n\nwe go on:\n%s",
		strings.Join(wants[:i], "\n"), strings.Join(wants[i:], "\n"), strings.Join(gots[i:], "\n"))
}

// FuzzScripts plays scripts that come out of a seed.
func FuzzScripts(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		differ(t, []string{"pick_first", "round_robin"}[random.IntN(2)], randomScript(random))
	})
}

// randomScript makes a script. Moments are odd, so that steps do not meet what backoffs end.
func randomScript(random *rand.Rand) string {
	hosts := []string{"a", "b", "c", "1.1.1.1:1", "1.1.1.2:1", "[::1]:1", "[::2]:1"}
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	list := func(separator string, most int) string {
		var names []string
		for range random.IntN(most + 1) {
			names = append(names, pick(hosts...))
		}
		return strings.Join(names, separator)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "update %s\nconnect\n", list(" ", 4))
	for _, host := range hosts {
		fmt.Fprintf(&b, "host %s %s\n", host, pick("ok", "fail", "hang", "slow"))
	}
	replaced := false
	for i := range 5 + random.IntN(25) {
		odd := time.Duration(i) * 7919 * time.Nanosecond
		switch n := random.IntN(40); {
		case n < 6:
			fmt.Fprintf(&b, "update %s\n", list(" ", 4))
		case n < 9:
			fmt.Fprintf(&b, "endpoints %s %s %s\n", pick(hosts...), pick(hosts...)+","+pick(hosts...), list(",", 1))
		case n < 11:
			policy := pick("pick_first", "round_robin")
			replaced = replaced || policy == "pick_first"
			fmt.Fprintf(&b, "policy %s %s\n", policy, list(" ", 4))
		case n < 12:
			// No reset: grpc-go's reads a map without its lock in it.
			fmt.Fprintf(&b, "%s\n", pick("report x", "config"))
		case n < 17:
			fmt.Fprintf(&b, "host %s %s\n", pick(hosts...), pick("ok", "fail", "hang", "slow"))
		case n < 26 && replaced: // the connections of a round_robin that may be replaced stay
		case n < 22:
			fmt.Fprintf(&b, "break %s\n", pick(hosts...))
		case n < 26:
			fmt.Fprintf(&b, "drain %s\n", pick(hosts...))
		case n < 31:
			fmt.Fprintf(&b, "sleep %v\n", time.Duration(random.Int64N(3_000_000_000))+odd)
		case n < 32:
			fmt.Fprintf(&b, "sleep %v\n", pick("31.1234567s", "10m1.1234567s"))
			replaced = false
		case n < 34:
			fmt.Fprintf(&b, "connect\n")
		default:
			fmt.Fprintf(&b, "%s %v\n", pick("call", "wait"), time.Duration(random.Int64N(3_000_000_000))+odd)
		}
	}
	return b.String()
}
