//go:build !percore_net

package percore

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// TestReadStats follows the sums through the life of a listener and its connections.
func TestReadStats(t *testing.T) {
	before := ReadStats()
	group, err := loop.NewGroup(loop.Config{Loops: 2, Name: "TestReadStats"})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	ln := listen(t, ListenConfig{Group: group}, "tcp", "127.0.0.1:0")
	own := func() *ListenerStats {
		all := ReadStats().Listeners
		i := slices.IndexFunc(all, func(s ListenerStats) bool { return s.Address == ln.Addr().String() })
		if i < 0 {
			return nil
		}
		return &all[i]
	}
	conn, _ := connect(t, ln)
	other, _ := connect(t, ln)
	s := own()
	if s == nil || s.Network != "tcp" || s.Group != "TestReadStats" || s.Sockets != 2 || s.Accepted != 2 || s.Conns != 2 {
		t.Fatalf("got %+v, want 2 connections of 2 open", s)
	}
	if got := ln.Stats(); got != *s {
		t.Errorf("Stats: got %+v, want %+v as in ReadStats", got, *s)
	}
	conn.Close()
	conn.Close()
	if s := own(); s.Accepted != 2 || s.Conns != 1 {
		t.Errorf("got %+v after a Close, want 1 connection open", s)
	}
	dialed, err := (&Dialer{Group: group}).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	after := ReadStats()
	// Connections of earlier tests may be collected at the same time.
	if after.Conns < 2 || after.Dialed < before.Dialed+1 || after.Closed < before.Closed+1 || after.Accept.Accepted < before.Accept.Accepted+2 {
		t.Errorf("got %+v, then %+v, want 1 dialed, 1 closed, 2 accepted more", before, after)
	}
	i := slices.IndexFunc(after.Loops.Groups, func(s loop.Stats) bool { return s.Group == "TestReadStats" })
	if i < 0 || after.Loops.Groups[i].Descriptors != 2 || after.Loops.Groups[i].Registered != 3 {
		t.Errorf("got the groups %+v, want 2 descriptors of 3", after.Loops.Groups)
	}
	dialed.Close()
	ln.Close()
	if own() != nil {
		t.Errorf("got %+v after Close, want no such listener", own())
	}
	other.Close()
	if end := ReadStats(); end.Closed < before.Closed+3 || end.Accept.Accepted < after.Accept.Accepted {
		t.Errorf("got %+v, then %+v, want all closed and still counted", before, end)
	}
}

// TestReadStatsUnaccepted: a connection that is closed before Accept returns it is no longer open.
func TestReadStatsUnaccepted(t *testing.T) {
	ln := listen(t, ListenConfig{ProxyProtocol: &ProxyProtocol{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}, "tcp", "127.0.0.1:0")
	go ln.Accept()
	client := testnet.Dial(t, ln)
	testnet.Eventually(t, "a connection whose header is awaited", func() bool { return ln.Stats().Conns == 1 })
	if _, err := client.Write([]byte("no header of the PROXY protocol\r\n")); err != nil {
		t.Fatal(err)
	}
	testnet.Eventually(t, "its end", func() bool {
		s := ln.Stats()
		return s.Conns == 0 && s.BadHeaders == 1 && s.Accepted == 0
	})
}

// TestReadStatsDefaultGroup: the group of listeners that don't bring their own has its name.
func TestReadStatsDefaultGroup(t *testing.T) {
	ln := listen(t, ListenConfig{}, "unix", filepath.Join(t.TempDir(), "socket"))
	if s := ln.Stats(); s.Group != "default" || s.Network != "unix" || s.Sockets != 1 {
		t.Errorf("got %+v, want the default group", s)
	}
}

// TestSkippedStats: errors of accept4 that are about one connection are counted by their kind.
func TestSkippedStats(t *testing.T) {
	l := new(listener)
	for _, step := range []struct {
		errno syscall.Errno
		want  AcceptStats
	}{
		{syscall.EINTR, AcceptStats{}},
		{syscall.ECONNABORTED, AcceptStats{SkippedAborted: 1}},
		{syscall.EPROTO, AcceptStats{SkippedAborted: 1, SkippedProtocol: 1}},
		{syscall.EHOSTUNREACH, AcceptStats{SkippedAborted: 1, SkippedProtocol: 1, SkippedNetwork: 1}},
	} {
		l.countSkipped(step.errno)
		if got := acceptStats(&l.counts); got != step.want {
			t.Errorf("after %v: got %+v, want %+v", step.errno, got, step.want)
		}
	}
}

// TestStatsJSON: the metrics form one JSON object, with the fields' names.
func TestStatsJSON(t *testing.T) {
	ln := listen(t, ListenConfig{}, "tcp", "127.0.0.1:0")
	connect(t, ln)
	text, err := json.Marshal(ReadStats())
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Accept    struct{ Accepted *uint64 }
		Listeners []struct{ Network, Accepted any }
		Loops     struct {
			Wakeups *uint64
			Groups  []struct {
				Group   string
				PerLoop []struct{ Loop, Descriptors *int }
			}
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Accept.Accepted == nil || len(got.Listeners) == 0 || got.Listeners[0].Accepted == nil || got.Loops.Wakeups == nil ||
		len(got.Loops.Groups) == 0 || got.Loops.Groups[0].PerLoop[0].Descriptors == nil {
		t.Errorf("got %s, want the fields by their names", text)
	}
}

// BenchmarkReadStats measures the cost of a call, with as many listeners as a program may have.
func BenchmarkReadStats(b *testing.B) {
	for range 4 {
		listen(b, ListenConfig{}, "tcp", "127.0.0.1:0")
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = ReadStats()
	}
}
