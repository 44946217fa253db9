// Package tcpinfo exports what the kernel knows about TCP connections (see [percore.TCPInfo]) as
// metrics. It reads a sample of the connections when they are closed: how far away clients are, how
// fast they take what is sent, and how much of it is lost on the way.
//
//	tcpinfo.Sample(100) // one in a hundred
//
// The metrics follow gRPC's proposal A80, under the adapter "tcp". Its two histograms count
// connections by the upper bound of their bucket ("le"), as in Prometheus:
//
//	histogram_quantile(0.9, rate(percore_tcp_min_rtt_connections_total[5m]))
//
// Until Sample is called the metrics are 0, and cost nothing. They stay 0 off Linux, and where
// package net serves. Package tcpinfo is experimental.
package tcpinfo

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/seam"
)

// Sample makes one in every connections of the process, accepted and dialed, count when it is closed.
// The choice is random, and each costs a system call. 0, the initial state, ends the sampling;
// connections that were sampled stay in the metrics. Sample may be called at any time. It panics if
// every is negative.
func Sample(every int) {
	if every < 0 {
		panic(fmt.Sprintf("tcpinfo: Sample was called with %d", every))
	}
	if every == 0 {
		seam.Closing.Store(nil)
		return
	}
	f := func(c net.Conn) (closed func()) {
		if rand.IntN(every) > 0 {
			return nil
		}
		info, err := c.(*percore.Conn).TCPInfo()
		if err != nil { // of a unix socket, or closed already
			return nil
		}
		return func() { all.add(&info) }
	}
	seam.Closing.Store(&f)
}

var all metrics

type metrics struct {
	conns, sent, retransmitted, spurious atomic.Uint64

	// These have at i the connections between the bounds i-1 and i.
	minRTT       [len(rttBounds)]atomic.Uint64
	deliveryRate [len(rateBounds)]atomic.Uint64
}

var (
	rttBounds  = [...]float64{1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, math.Inf(1)} // seconds
	rateBounds = [...]float64{1e5, 3e5, 1e6, 3e6, 1e7, 3e7, 1e8, 1e9, 1e10, math.Inf(1)}    // bits per second
)

func (m *metrics) add(info *percore.TCPInfo) {
	m.conns.Add(1)
	m.sent.Add(info.Sent)
	m.retransmitted.Add(info.Retransmitted)
	m.spurious.Add(info.Spurious)
	if rtt := info.MinRTT.Seconds(); rtt > 0 {
		count(rttBounds[:], m.minRTT[:], rtt)
	}
	if rate := 8 * float64(info.DeliveryRate); rate > 0 {
		count(rateBounds[:], m.deliveryRate[:], rate)
	}
}

func count(bounds []float64, buckets []atomic.Uint64, value float64) {
	i := 0
	for value > bounds[i] {
		i++
	}
	buckets[i].Add(1)
}

func init() { percore.RegisterAdapter("tcp", all.read) }

func (m *metrics) read() []percore.Metric {
	to := []percore.Metric{
		{Name: "sampled_connections_total", Help: "Connections that package tcpinfo has looked at when they were closed", Value: float64(m.conns.Load())},
		{Name: "packets_sent_total", Help: "Of these, packets with data that were sent, also those that were sent again", Value: float64(m.sent.Load())},
		{Name: "packets_retransmitted_total", Help: "Of these, packets that were sent again", Value: float64(m.retransmitted.Load())},
		{Name: "packets_spurious_retransmitted_total", Help: "Of these, packets that were sent again although the peer had them", Value: float64(m.spurious.Load())},
	}
	to = appendBuckets(to, "min_rtt_connections_total", "Sampled connections whose shortest round trip took so many seconds, or less", rttBounds[:], m.minRTT[:])
	return appendBuckets(to, "delivery_rate_connections_total", "Sampled connections whose peer took so many bits per second lately, or fewer", rateBounds[:], m.deliveryRate[:])
}

func appendBuckets(to []percore.Metric, name, help string, bounds []float64, buckets []atomic.Uint64) []percore.Metric {
	sum := uint64(0)
	for i, bound := range bounds {
		sum += buckets[i].Load()
		to = append(to, percore.Metric{Name: name, Help: help, Label: "le", Of: strconv.FormatFloat(bound, 'g', -1, 64), Value: float64(sum)})
	}
	return to
}
