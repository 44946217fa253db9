package reactor

import (
	"errors"
	"io"
	"os"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/shared/counters"
)

func init() { percore.RegisterAdapter("reactor", readMetrics) }

// counter is one of the numbers that are counted. Sums are read in their order. Ends come first, since
// a connection is counted out after it was counted in: no difference is below 0.
type counter uint8

const (
	countClosed           counter = 0 // from here by the reason
	countHijacked                 = countClosed + counter(reasonCount)
	countOpened                   = countHijacked + 1
	countDataCalls                = countHijacked + 2
	countSlowCallbacks            = countHijacked + 3
	countRefusedWrites            = countHijacked + 4
	countBlocked                  = countHijacked + 5 // connections whose backlog is counted in countUnsent
	countUnsent                   = countHijacked + 6 // bytes
	countWaiting                  = countHijacked + 7 // functions of Go
	countFailedHandshakes         = countHijacked + 8
	counterCount                  = countHijacked + 9 // how many there are
)

// process has the counters of the process. A loop of a server counts in a cell that other loops seldom
// share, so that processors don't contend for it.
var process = counters.NewSet(64, counterCount)

// reason is a kind of error of the handler's Close.
type reason uint8

const (
	byServer reason = iota
	byPeer
	byPeerEarly
	byTimeout
	byLongMessage
	bySlowPeer
	byPanic
	byError

	reasonCount = iota
)

var reasonNames = [reasonCount]string{"server", "peer", "unexpected_eof", "timeout", "read_buffer_full", "write_buffer_full", "panic", "error"}

func reasonOf(err error) reason {
	var p *PanicError
	switch {
	case err == nil || err == ErrServerClosed:
		return byServer
	case err == io.EOF:
		return byPeer
	case err == io.ErrUnexpectedEOF:
		return byPeerEarly
	case errors.Is(err, os.ErrDeadlineExceeded):
		return byTimeout
	case err == ErrReadBufferFull:
		return byLongMessage
	case err == ErrWriteBufferFull:
		return bySlowPeer
	case errors.As(err, &p):
		return byPanic
	}
	return byError
}

// readMetrics returns the sums over all servers of the process.
func readMetrics() []percore.Metric {
	sums := process.Sums()
	value := func(c counter) float64 { return float64(sums[c]) }
	conns := sums[countOpened] - sums[countHijacked]
	for r := range reasonCount {
		conns -= sums[countClosed+counter(r)]
	}
	all := []percore.Metric{
		{Name: "connections", Help: "Connections that handlers have, those that are about to be opened or closed included", Value: float64(conns)},
		{Name: "blocked_connections", Help: "Connections whose peer does not read what was written", Value: value(countBlocked)},
		{Name: "unsent_bytes", Help: "Bytes that wait in memory for the peers of blocked connections", Value: value(countUnsent)},
		{Name: "waiting_functions", Help: "Functions of Conn.Go that wait for a goroutine", Value: value(countWaiting)},
		{Name: "opened_connections_total", Help: "Connections that handlers were given", Value: value(countOpened)},
		{Name: "hijacked_connections_total", Help: "Connections that Hijack has handed to blocking code", Value: value(countHijacked)},
		{Name: "data_calls_total", Help: "Calls of handlers' Data", Value: value(countDataCalls)},
		{Name: "slow_callbacks_total", Help: "Callbacks of 10 ms or more", Value: value(countSlowCallbacks)},
		{Name: "refused_writes_total", Help: "Writes that were refused because WriteHardLimit bytes waited for the peer", Value: value(countRefusedWrites)},
		{Name: "failed_handshakes_total", Help: "Handshakes of package reactortls that failed, or took too long", Value: value(countFailedHandshakes)},
	}
	for r, name := range reasonNames {
		all = append(all, percore.Metric{
			Name: "closed_connections_total",
			Help: "Connections that were closed, by reason: this side (server), the peer after everything was sent (peer), " +
				"the peer within a message (unexpected_eof), a timeout, a message over ReadBufferMax (read_buffer_full), " +
				"a write at WriteHardLimit (write_buffer_full), a panic, another error",
			Label: "reason", Of: name, Value: value(countClosed + counter(r)),
		})
	}
	return all
}
