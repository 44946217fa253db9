package tcpinfo

import (
	"io"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// values returns the metrics by their names and labels.
func (m *metrics) values() map[string]float64 {
	to := make(map[string]float64)
	for _, f := range m.read() {
		to[f.Name+f.Of] = f.Value
	}
	return to
}

func TestArguments(t *testing.T) {
	testnet.CheckArguments(t, map[string]testnet.Call{"Sample": {Func: Sample}})
	defer func() {
		if recover() == nil {
			t.Error("Sample(-1) has not panicked")
		}
	}()
	Sample(-1)
}

// TestBuckets: connections are counted by the bounds that they are within, and what was not measured is
// left out.
func TestBuckets(t *testing.T) {
	m := new(metrics)
	m.add(&percore.TCPInfo{Sent: 10, Retransmitted: 3, Spurious: 1, MinRTT: time.Millisecond, DeliveryRate: 1e6 / 8})
	m.add(&percore.TCPInfo{Sent: 1, MinRTT: time.Minute, DeliveryRate: 1e6/8 + 1})
	m.add(new(percore.TCPInfo))
	got := m.values()
	for name, want := range map[string]float64{
		"sampled_connections_total": 3, "packets_sent_total": 11, "packets_retransmitted_total": 3, "packets_spurious_retransmitted_total": 1,
		"min_rtt_connections_total0.0003": 0, "min_rtt_connections_total0.001": 1, "min_rtt_connections_total1": 1, "min_rtt_connections_total+Inf": 2,
		"delivery_rate_connections_total300000": 0, "delivery_rate_connections_total1e+06": 1, "delivery_rate_connections_total3e+06": 2,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("got %v for %s, want %v", v, name, want)
		}
	}
}

// TestSample: one of so many connections is counted, once, and none before Sample and behind Sample(0).
func TestSample(t *testing.T) {
	testnet.NoLeaks(t)
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	engine := true
	serve := func(n int) float64 {
		before := all.values()["sampled_connections_total"]
		for range n {
			client := testnet.Dial(t, ln)
			c, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, client, 1000); err != nil {
				t.Fatal(err)
			}
			_, err = c.(*percore.Conn).TCPInfo()
			engine = err == nil
			c.Close()
			c.Close()
			client.Close()
		}
		return all.values()["sampled_connections_total"] - before
	}
	if got := serve(3); got != 0 {
		t.Errorf("%v connections were counted without Sample", got)
	}
	defer Sample(0)
	Sample(1)
	if got := serve(3); engine && got != 3 || !engine && got != 0 {
		t.Errorf("%v of 3 connections were counted, want all", got)
	}
	Sample(2)
	if got := serve(100); engine && (got == 0 || got == 100) {
		t.Errorf("%v of 100 connections were counted, want half of them or so", got)
	}
	if got := all.values(); engine && (got["packets_sent_total"] < 3 || got["min_rtt_connections_total+Inf"] < 3) {
		t.Errorf("got %v", got)
	}
	Sample(0)
	if got := serve(4); got != 0 {
		t.Errorf("%v connections were counted after Sample(0)", got)
	}
}
