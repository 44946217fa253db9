package httpadapter

import (
	"bytes"
	"fmt"

	"github.com/percore/percore/adapters/httpadapter/internal/probe"
)

// phase is how far net/http is with a connection that is leased.
//
//	phase           meaning                                           leaves by
//	opening         nothing was read yet                              endWait: busy, arrived, http2, ending
//	arrived         it has the first bytes since parking, and no more readMore, setReadDeadline: busy
//	                yet
//	busy            a request is under way                            finish: idle
//	idle            it waits for the next request, or is about to     endWait: busy, http2, ending;
//	                                                                  setReadDeadline, again: busy
//	ending          its waiting Read has returned io.EOF              endLease: ended
//	ended           it has closed its lease                           giveBack: parked, or fresh; end:
//	                                                                  closed, if net/http accepts no more
//	http2           it speaks HTTP/2, or its handshake has failed:    end: closed, if the user's Close of
//	                never parked                                      the *tls.Conn is under way, and
//	                                                                  net/http's does nothing
//	shut            closed; StateClosed is still to come              end: closed
//	closedInHeader  the same, since arrived, or since opening after   setReadDeadline: shut; end: closed
//	                parking
//
// Besides:
//
//   - close leads to shut or closedInHeader, because net/http reports StateClosed. The first Close in
//     ending is the one by which net/http gives a lease back. If the user has called it instead, net/http
//     calls the second and closes the connection anyway.
//   - hijack ends every phase in which a handler may run.
//
// In ended the goroutine that is in the ConnState hook is the last part of net/http that
// refers to the lease: net/http took it out of the list of connections that Shutdown and
// Close go through before. So no Close of an old lease can hit a new one.
type phase uint8

const (
	phaseNone phase = iota // the connection isn't leased
	phaseOpening
	phaseArrived
	phaseBusy
	phaseIdle
	phaseEnding
	phaseEnded
	phaseHTTP2
	phaseShut
	phaseClosedInHeader

	phaseCount = iota
)

var phaseNames = [phaseCount]string{
	"none", "opening", "arrived", "busy", "idle", "ending", "ended", "http2", "shut", "closedInHeader",
}

func (s phase) String() string {
	if int(s) < len(phaseNames) {
		return phaseNames[s]
	}
	return fmt.Sprintf("phase(%d)", uint8(s))
}

// leaseEdges is the table above: where each phase may lead. leaseBegins has the phases that a lease
// begins with, and leaseEnds the states of the connection in which it may end.
var (
	leaseEdges = [phaseCount]set[phase]{
		phaseOpening:        setOf(phaseBusy, phaseArrived, phaseHTTP2, phaseEnding, phaseShut, phaseClosedInHeader),
		phaseArrived:        setOf(phaseBusy, phaseClosedInHeader),
		phaseBusy:           setOf(phaseIdle, phaseShut),
		phaseIdle:           setOf(phaseBusy, phaseHTTP2, phaseEnding, phaseShut),
		phaseEnding:         setOf(phaseEnded, phaseShut),
		phaseEnded:          setOf(phaseShut),
		phaseHTTP2:          setOf(phaseShut),
		phaseClosedInHeader: setOf(phaseShut),
	}
	leaseBegins = setOf(phaseOpening, phaseHTTP2)
	leaseEnds   = [phaseCount]set[state]{
		phaseArrived:        setOf(stateHijacked),
		phaseBusy:           setOf(stateHijacked),
		phaseIdle:           setOf(stateHijacked),
		phaseEnded:          setOf(stateParked, stateFresh, stateClosed),
		phaseHTTP2:          setOf(stateHijacked, stateClosed),
		phaseShut:           setOf(stateHijacked, stateClosed),
		phaseClosedInHeader: setOf(stateHijacked, stateClosed),
	}
)

// leaseState is a connState as net/http's side sees it. Its changes have a meaning only while the
// connection is leased: see conn.changeLease.
type leaseState connState

const (
	predated     leaseState = 1 << (6 + iota) // idle: a deadline was set that is replaced by a short one: see probe.Way
	dated                                     // idle: the deadline was set since StateIdle
	bare                                      // idle: net/http has given its buffer back: see probe.Way
	waiting                                   // opening, idle: a Read waits for a first byte, and
	parkable                                  // may be ended to park the connection, which
	expired                                   // is being done: the engine's deadline has passed
	recentlyUsed                              // opening to idle: it was parked for nothing: see sweeper
	sniffed                                   // the method is that of the request under way
	inHeader                                  // arrived, busy: net/http has not got all of the lease's first header
	answered                                  // busy: net/http has taken the write deadline of the request away
	unannounced                               // opening, http2: StateNew is still to come for the lease

	leaseBegan = leaseState(began)
)

var leaseFlagNames = []string{
	"predated", "dated", "bare", "waiting", "parkable", "expired", "recentlyUsed", "sniffed", "inHeader", "answered", "unannounced",
}

// phase returns the phase; phaseNone if the connection isn't leased.
func (s leaseState) phase() phase {
	if s&leasedBit == 0 {
		return phaseNone
	}
	return phase(s & (leasedBit - 1))
}

func (s leaseState) has(flags leaseState) bool       { return s&flags == flags }
func (s leaseState) to(st phase) leaseState          { return s&^stateMask | leasedBit | leaseState(st) }
func (s leaseState) set(flags leaseState) leaseState { return s | flags }
func (s leaseState) clear(fl leaseState) leaseState  { return s &^ fl }

// flags is for failures.
func (s leaseState) flags() (text string) {
	for i, name := range leaseFlagNames {
		if s.has(predated << i) {
			text += " " + name
		}
	}
	return text
}

// check panics if the flags, to which a change from another state has led, contradict each other.
func (s leaseState) check(from connState) {
	switch to := connState(s); {
	case s.has(parkable) && !s.has(waiting):
		panic(fmt.Sprintf("httpadapter: %v became %v: no Read waits that could be ended", from, to))
	case s.has(expired) && !s.has(parkable):
		panic(fmt.Sprintf("httpadapter: %v became %v: a Read is being ended that must not be", from, to))
	case s.has(waiting) && to.state() != stateClosed && !waitPhases.has(s.phase()):
		panic(fmt.Sprintf("httpadapter: %v became %v while a Read waits for a request", from, to))
	}
}

// waitPhases are the phases in which a Read may wait for a request, or, once the connection is closed,
// until it fails.
var waitPhases = setOf(phaseOpening, phaseIdle, phaseShut, phaseClosedInHeader)

// # The wait for a request

// announce is for net/http's StateNew, which comes once per lease.
func (s leaseState) announce() (leaseState, bool) { return s.clear(unannounced), s.has(unannounced) }

// waits reports whether a Read would wait for a request.
func (s leaseState) waits() bool { return s.phase() == phaseOpening || s.phase() == phaseIdle }

// These flags of idle tell how far net/http has got with its wait (see [probe.Way]):
//
//	flags         meaning                                           a Read may be ended if
//	-             nothing yet                                       never
//	predated      the first of three deadlines was set              never
//	dated         the deadline of the first Read was set            the buffer is empty
//	dated bare    that Read, into the empty buffer, has timed out   never
//	bare          the deadline of the second Read was set           it is for one byte

// beginWait is for a Read into a slice of size bytes, at the given tick. If net/http has none of
// the request the connection may be parked during the Read.
//
// In idle it may be if net/http has set one deadline, the wait's own, and reads into all of its buffer:
// then that is empty. It also may be after the second deadline, when there is no buffer any more. A
// net/http that has set no deadline isn't one that is known, and waits for as long as it likes.
func (s leaseState) beginWait(size int, tick uint32, way probe.Way) (leaseState, bool) {
	to := s.set(waiting)
	switch {
	case !s.waits() || way == probe.Unknown:
	case s.phase() == phaseOpening, s.has(dated) && !s.has(bare) && size == probe.ReadBytes:
		to = to.set(parkable).at(tick)
	case s.has(bare) && !s.has(dated) && size == 1:
		to = to.set(parkable) // the same wait
	}
	return to, s.waits()
}

// timeOut is for a Read into a slice of size bytes that has found nothing until net/http's own deadline.
// If that was the first of two, net/http gives its empty buffer back.
func (s leaseState) timeOut(size int, way probe.Way) leaseState {
	to := s.clear(waiting | parkable | expired)
	if way.GivesBack() && s.phase() == phaseIdle && s.has(dated) && size == probe.ReadBytes {
		to = to.set(bare)
	}
	return to
}

// mayPark reports whether a Read waits that may be ended to park the connection.
func (s leaseState) mayPark() bool { return s&(parkable|expired) == parkable }

// expireRead is for a Read that has waited for long enough.
func (s leaseState) expireRead() (leaseState, bool) { return s.set(expired), s.mayPark() }

// resume is for the first byte after parking, of which net/http knows nothing yet.
func (s leaseState) resume() leaseState { return s.clear(parkable | expired) }

// endWait is for a Read that has found p in a slice of size bytes. If it has found nothing, park says
// whether it was ended to park the connection.
func (s leaseState) endWait(p []byte, size int, park bool) leaseState {
	to := s.clear(waiting | parkable | expired)
	switch {
	case !s.waits(): // closed by now
	case len(p) > 0:
		return to.begin(p, size)
	case park:
		return to.to(phaseEnding)
	}
	return to
}

// begin is for the first bytes of a request.
func (s leaseState) begin(p []byte, size int) leaseState {
	to := s.clear(answered).to(phaseBusy)
	switch {
	case s.phase() == phaseOpening:
		if s.has(leaseBegan) {
			to = to.to(phaseArrived)
		}
		return to.set(inHeader).sniff(p)
	case size == probe.ReadBytes, s.has(bare):
		return to.sniff(s.skipNewlines(p))
	}
	return to.sniff(nil) // it began before p
}

// at notes that a wait begins at the given tick.
func (s leaseState) at(tick uint32) leaseState {
	return s&^(tickMask<<tickShift) | leaseState(tick)<<tickShift
}

// since returns how many ticks ago, seen from the given one, the wait began. It goes
// round after tickMask ticks.
func (s leaseState) since(tick uint32) uint32 { return (tick - uint32(s>>tickShift)) & tickMask }

// # A request

// readMore is for the bytes after the first ones since parking.
func (s leaseState) readMore() (leaseState, bool) { return s.to(phaseBusy), s.phase() == phaseArrived }

// completeHeader is for a header that net/http has read to its end.
func (s leaseState) completeHeader() (leaseState, bool) { return s.clear(inHeader), true }

// answer is for a request whose write deadline net/http takes away: it is answered.
func (s leaseState) answer() (leaseState, bool) { return s.set(answered), s.phase() == phaseBusy }

// finish is for net/http's StateIdle.
func (s leaseState) finish() (leaseState, bool) {
	if !s.has(sniffed) {
		s = s.withMethod(methodUnknown) // of a pipelined request, whose first bytes were not seen as such
	}
	to := s.clear(sniffed | predated | dated | bare | inHeader | answered).set(leaseBegan).to(phaseIdle)
	return to, s.phase() == phaseBusy && s.has(answered)
}

// resuming reports whether a connection waits, as net/http would have it if it hadn't
// been parked, for its next request: no whole header has come since.
func (s leaseState) resuming() bool {
	switch s.phase() {
	case phaseOpening:
		return s.has(leaseBegan)
	case phaseArrived, phaseBusy:
		return s.has(leaseBegan | inHeader)
	}
	return false
}

// deadlineUse is the purpose of a read deadline that is set.
type deadlineUse uint8

const (
	deadlinePlain   deadlineUse = iota // for the engine, as it is
	deadlineReal                       // the one that goes on while the connection is parked
	deadlineNoted                      // the same, which is replaced before a Read
	deadlineShort                      // the one after which net/http gives its buffer back
	deadlineRest                       // the one after that, unless the one that goes on is over before
	deadlineFirst                      // net/http's for the first header of a new connection
	deadlineRequest                    // net/http's for all of a request whose header it has got
	deadlineEarly                      // net/http's for a header that has not begun
)

// deadlineUse returns the purpose on a connection that isn't leased.
func (s connState) deadlineUse() deadlineUse {
	switch s.state() {
	case stateShut, stateClosing, stateHijacked, stateClosed:
		return deadlinePlain
	}
	return deadlineReal
}

// servedAlone reports whether only the goroutine that serves the lease changes the connection, besides
// a Close. Then SetReadDeadline needs no lock, and if the user sets a deadline at the same time either
// may win.
func (s leaseState) servedAlone() bool {
	return s.phase() == phaseBusy && !s.has(inHeader) || s.phase() == phaseIdle && s&(dated|waiting) == 0
}

// setReadDeadline is for a read deadline, of which there are several: see timeouts.go.
func (s leaseState) setReadDeadline(way probe.Way) (leaseState, deadlineUse) {
	switch s.phase() {
	case phaseNone:
		return s, connState(s).deadlineUse()
	case phaseEnding, phaseEnded:
		return s, deadlineReal
	case phaseOpening:
		if s.has(leaseBegan) {
			return s, deadlineEarly
		}
		return s, deadlineFirst
	case phaseIdle:
		switch {
		case s.has(waiting):
			return s, deadlineReal // the user's
		case s.has(dated | bare):
			return s.clear(dated), deadlineRest
		case s.has(dated), s.has(bare):
			// net/http has set the deadline of the wait, and now that of the header: it has
			// seen all that it wanted of the next request in its buffer, without a Read.
			return s.to(phaseBusy), deadlinePlain
		case way == probe.Thrice && !s.has(predated):
			return s.set(predated), deadlineNoted
		case way.GivesBack():
			return s.set(dated), deadlineShort
		}
		return s.set(dated), deadlineReal
	case phaseArrived, phaseBusy:
		if s.has(inHeader) {
			return s.to(phaseBusy).clear(inHeader), deadlineRequest
		}
		return s.to(phaseBusy), deadlinePlain
	case phaseClosedInHeader:
		return s.to(phaseShut), deadlinePlain // a whole header came anyway
	}
	return s, deadlinePlain
}

// # The end of a lease

// ending reports whether a Read of net/http's has returned io.EOF so that the connection is parked.
func (s leaseState) ending() bool { return s.phase() == phaseEnding || s.phase() == phaseEnded }

// endLease is for the Close of a lease after its Read has returned io.EOF.
func (s leaseState) endLease() (leaseState, bool) { return s.to(phaseEnded), s.phase() == phaseEnding }

// mayHijack reports whether a StateHijacked can be from net/http. In idle the user has called ConnState
// with StateIdle, unless a Read waits.
func (s leaseState) mayHijack() bool {
	return leaseEnds[s.phase()].has(stateHijacked) && !s.has(waiting)
}

// close is for a connection that is closed permanently.
func (s leaseState) close() leaseState {
	st := s.phase()
	if st == phaseOpening && s.has(leaseBegan) || st == phaseArrived || st == phaseClosedInHeader {
		return s.to(phaseClosedInHeader)
	}
	return s.to(phaseShut)
}

// closeLeased is for a connection that net/http is done with, though it has not closed it.
func (s leaseState) closeLeased() (leaseState, bool) {
	switch s.phase() {
	case phaseOpening, phaseArrived, phaseBusy, phaseIdle:
		return s.close(), true
	}
	return s, false
}

// # The last request

// method is the memory of the last request while its connection is parked:
// net/http skips an empty line before a request if the last one was a POST, and
// answers it with "400 Bad Request" otherwise.
//
// It isn't known if the request was pipelined, or if its first byte was read by
// net/http while it still answered the one before, or came alone. Then the line is
// skipped, too, as RFC 9112, 2.2, asks for in any case.
type method uint8

const (
	methodUnknown method = iota
	methodPOST
	methodOther
)

// http2Begin is how a client begins that speaks HTTP/2 with prior knowledge (RFC 9113, 3.4).
const http2Begin = "PRI "

func (s leaseState) method() method { return method(s & methodMask >> methodShift) }

func (s leaseState) withMethod(m method) leaseState {
	return s&^methodMask | leaseState(m)<<methodShift
}

// sniff notes the method of a request that begins with p. If that is HTTP/2, with prior knowledge, the
// phase is http2.
func (s leaseState) sniff(p []byte) leaseState {
	m := methodUnknown
	switch {
	case mayBegin(p, http2Begin):
		if len(p) >= len(http2Begin) {
			s = s.to(phaseHTTP2)
		}
	case mayBegin(p, "POST "):
		if len(p) >= len("POST ") {
			m = methodPOST
		}
	default:
		m = methodOther
	}
	return s.set(sniffed).withMethod(m)
}

// skipNewlines returns p, the bytes after the last request, without those that net/http
// skips. It returns nothing if that can't be known from so few.
func (s leaseState) skipNewlines(p []byte) []byte {
	switch {
	case s.method() == methodOther:
		return p
	case len(p) < probe.PeekBytes:
		return nil
	}
	return p[leadingNewlines(p[:probe.PeekBytes]):]
}

// mayBegin reports whether p begins with word as far as it goes.
func mayBegin(p []byte, word string) bool {
	n := min(len(p), len(word))
	return string(p[:n]) == word[:n]
}

// leadingNewlines counts the carriage returns and line feeds at the start of p.
func leadingNewlines(p []byte) int {
	return len(p) - len(bytes.TrimLeft(p, "\r\n"))
}
