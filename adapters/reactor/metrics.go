package reactor

import (
	"errors"
	"io"
	"os"
	"sync/atomic"

	"github.com/percore/percore"
)

func init() { percore.RegisterAdapter("reactor", readMetrics) }

// The metrics of the process are the sums over the cells. A loop of a server counts in a
// cell that other loops seldom share, so that processors don't contend for it.
var cells [64]cell

// cell is the counts of some loops. Each field is changed by any goroutine.
type cell struct {
	opened, detached atomic.Uint64
	closed           [reasonCount]atomic.Uint64
	dataCalls        atomic.Uint64
	slowCallbacks    atomic.Uint64
	refusedWrites    atomic.Uint64
	blocked          atomic.Int64 // connections whose backlog is counted in unsent
	unsent           atomic.Int64 // bytes
	waiting          atomic.Int64 // functions of Go

	_ [64]byte // keeps the next cell off the last cache line of this one
}

var lastCell atomic.Uint32

// newCell returns the cell for a loop.
func newCell() *cell { return &cells[lastCell.Add(1)%uint32(len(cells))] }

// reason is a kind of reason that a connection was closed for.
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

// reasonOf returns the kind of an error of the handler's Close.
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
	// A connection is counted out after it was counted in, so reading goes the other way.
	var gone, detached, opened uint64
	var closed [reasonCount]uint64
	for i := range cells {
		for r := range closed {
			n := cells[i].closed[r].Load()
			closed[r] += n
			gone += n
		}
		n := cells[i].detached.Load()
		detached += n
		gone += n
	}
	var dataCalls, slow, refused uint64
	var blocked, unsent, waiting int64
	for i := range cells {
		c := &cells[i]
		opened += c.opened.Load()
		dataCalls += c.dataCalls.Load()
		slow += c.slowCallbacks.Load()
		refused += c.refusedWrites.Load()
		blocked += c.blocked.Load()
		unsent += c.unsent.Load()
		waiting += c.waiting.Load()
	}
	all := []percore.Metric{
		{Name: "connections", Help: "Connections that handlers have, those that are about to be opened or closed included", Value: float64(opened - gone)},
		{Name: "blocked_connections", Help: "Connections whose peer does not read what was written", Value: float64(blocked)},
		{Name: "unsent_bytes", Help: "Bytes that wait in memory for the peers of blocked connections", Value: float64(unsent)},
		{Name: "waiting_functions", Help: "Functions of Conn.Go that wait for a goroutine", Value: float64(waiting)},
		{Name: "opened_connections_total", Help: "Connections that handlers were given", Value: float64(opened)},
		{Name: "detached_connections_total", Help: "Connections that Detach has handed to blocking code", Value: float64(detached)},
		{Name: "data_calls_total", Help: "Calls of handlers' Data", Value: float64(dataCalls)},
		{Name: "slow_callbacks_total", Help: "Callbacks of 10 ms or more", Value: float64(slow)},
		{Name: "refused_writes_total", Help: "Writes that were refused because WriteHardLimit bytes waited for the peer", Value: float64(refused)},
	}
	all = append(all, percore.Metric{Name: "failed_handshakes_total",
		Help: "Handshakes of package reactortls that failed, or took too long", Value: float64(failedHandshakes.Load())})
	for r, n := range closed {
		all = append(all, percore.Metric{
			Name: "closed_connections_total",
			Help: "Connections that were closed, by reason: this side (server), the peer after everything was sent (peer), " +
				"the peer within a message (unexpected_eof), a timeout, a message over ReadBufferMax (read_buffer_full), " +
				"a write at WriteHardLimit (write_buffer_full), a panic, another error",
			Label: "reason", Of: reasonNames[r], Value: float64(n),
		})
	}
	return all
}
