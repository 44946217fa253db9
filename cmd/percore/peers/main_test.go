package main

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench"
	"github.com/percore/percore/cmd/percore/internal/bench/child"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) {
	register()
	if isChild, status := child.Run(os.Args[1:]); isChild {
		os.Exit(status)
	}
	testnet.Main(m)
}

// TestArms measures each library where it has a server. The load checks the answers.
func TestArms(t *testing.T) {
	arms, err := bench.ParseArms("percore+reactor,gnet,nbio,netpoll,net")
	if err != nil {
		t.Fatal(err)
	}
	rep, err := bench.Run(t.Context(), bench.Config{
		Arms: arms, Match: regexp.MustCompile("^(echo/(128B|16KiB)/conns=16|idle/echo|idle/http/|broadcast|resp)"), Rounds: 1,
		Duration: 50 * time.Millisecond, Idle: 100, Settle: 10 * time.Millisecond, Hung: testnet.HangTimeout,
	})
	if err != nil {
		t.Fatal(err)
	}
	measured := 0
	for i := range rep.Results {
		res := &rep.Results[i]
		if res.Scenario == "idle/http/conns=100" {
			continue // without a peer
		}
		measured++
		for _, arm := range arms {
			if got := res.Values(arm.Name, res.Headline[0]); len(got) != 1 {
				t.Errorf("%s on %s: got %v, want one figure", res.Scenario, arm.Name, got)
			}
		}
	}
	if measured != 5 {
		t.Errorf("%d scenarios were measured, want 5", measured)
	}
}
