package channel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
)

// attemptDelay is the time that an attempt gets before the next address is tried beside it: RFC 8305's
// "Connection Attempt Delay", section 5.
const attemptDelay = 250 * time.Millisecond

// A leaf connects to one of its addresses: the first that answers, tried in order.
//
//	state              left for
//	CONNECTING         READY: a subchannel is; the others are shut down
//	  (first pass)     TRANSIENT_FAILURE: the subchannels of all addresses have failed once
//	                   IDLE: a connection ended as soon as it was made
//	READY              IDLE: the connection has ended
//	CONNECTING, READY  TRANSIENT_FAILURE: it was the fourth useless one in a row; a pass begins
//	                   after a while
//	                   CONNECTING: its address has been removed
//	IDLE               CONNECTING: a call is made; in round_robin at once
//	TRANSIENT_FAILURE  READY: a subchannel is; each of them connects again and again
//	                   CONNECTING: in a pass over new addresses, a subchannel that hasn't failed yet
//	                   connects
//	any                TRANSIENT_FAILURE: the resolver has brought no address
//	any                SHUTDOWN: the leaf is closed
//	READY,             each other, as the health of the server is, while it is connected: see health.go
//	  CONNECTING, TF
//
// A pass begins at the first address, and goes on to the next one when an attempt fails or has taken
// 250 ms. A subchannel that waits after a failure counts as failed. All fields are guarded by the
// channel's mu.
type leaf struct {
	policy *policy
	state  connectivity.State
	err    error // of TRANSIENT_FAILURE
	conn   Conn  // of READY

	addrs     []resolver.Address
	next      int // the address of the latest attempt; len(addrs): the pass has no more
	subs      *resolver.AddressMapV2[*subchannel]
	firstPass bool
	failures  int    // since the first pass
	delay     *timer // until the next attempt
	useless   int    // connections since the last useful one: see ended
	rest      *timer // in TRANSIENT_FAILURE, until a pass begins; nil: it doesn't rest
}

// uselessMost is how many connections in a row may be of no use before others have to wait. They may
// well be: behind a balancer some servers go away, while others take over.
const uselessMost = 3

// errUseless is why a leaf rests.
var errUseless = errors.New(`connection error: desc = "the server has ended each connection as soon as it was made"`)

func newLeaf(p *policy) *leaf {
	return &leaf{policy: p, state: connectivity.Connecting, subs: resolver.NewAddressMapV2[*subchannel]()}
}

// set sets the state, and reports it even if it is the same. The policy may be closed in it, so it
// comes last.
func (f *leaf) set(state connectivity.State) {
	if f.state = state; state != connectivity.Ready {
		f.conn = nil
	}
	f.policy.leafChanged(f)
}

// fail enters TRANSIENT_FAILURE with a new error.
func (f *leaf) fail(err error) {
	f.err = err
	f.set(connectivity.TransientFailure)
}

// connecting enters CONNECTING, if it isn't the state already.
func (f *leaf) connecting() {
	if f.state != connectivity.Connecting {
		f.set(connectivity.Connecting)
	}
}

// ended takes the end of a connection. It was of use if the server has answered a call, or if it has
// lived as long as the backoff after a failure takes.
func (f *leaf) ended(wasOfUse bool) {
	if f.useless++; wasOfUse {
		f.useless = 0
	}
}

// takeRest begins a time without attempts. It grows like the backoff after failures.
func (f *leaf) takeRest() {
	c := f.policy.channel
	f.rest = c.startTimer(Backoff(c.config.ConnectParams.Backoff, f.useless-uselessMost-1), f.endRest)
	f.fail(errUseless)
}

func (f *leaf) endRest() {
	f.rest = nil
	f.startPass()
}

// resetBackoff ends the times after failures.
func (f *leaf) resetBackoff() {
	f.useless = 0
	for _, s := range f.subs.Values() {
		s.resetBackoff()
	}
	if f.rest != nil {
		f.rest.stop()
		f.endRest()
	}
}

// update takes addresses.
func (f *leaf) update(addrs []resolver.Address) error {
	f.delay.stop()
	if len(addrs) == 0 {
		f.keep(nil)
		f.addrs, f.next = nil, 0
		f.rest.stop()
		f.rest = nil
		f.resolverError(errors.New("produced zero addresses"))
		return balancer.ErrBadResolverState
	}
	first, wasReady := len(f.addrs) == 0, false
	var current *subchannel
	if f.next < len(f.addrs) {
		current, _ = f.subs.Get(f.addrs[f.next])
		wasReady = current != nil && current.state == connectivity.Ready // though its server may be ill
	}
	wanted := resolver.NewAddressMapV2[bool]()
	f.addrs, f.next = interleave(unique(addrs, wanted)), 0
	if wasReady && f.seek(current.addr) {
		return nil
	}
	for _, s := range f.subs.Values() {
		if ok, _ := wanted.Get(s.addr); !ok {
			f.remove(s)
		}
	}
	switch {
	case first, wasReady, f.state == connectivity.Connecting:
		f.set(connectivity.Connecting)
		f.startPass()
	case f.state == connectivity.TransientFailure && f.rest == nil:
		f.startPass()
	}
	return nil
}

// seek makes addr the current address. It reports false if there is no such address.
func (f *leaf) seek(addr resolver.Address) bool {
	i := slices.IndexFunc(f.addrs, func(a resolver.Address) bool {
		return a.Addr == addr.Addr && a.ServerName == addr.ServerName && a.Attributes.Equal(addr.Attributes)
	})
	if i >= 0 {
		f.next = i
	}
	return i >= 0
}

// resolverError takes an error of the resolver. Addresses that are in use stay.
func (f *leaf) resolverError(err error) {
	if f.state == connectivity.TransientFailure || len(f.addrs) == 0 {
		f.fail(fmt.Errorf("name resolver error: %v", err))
	}
}

// exitIdle connects, if the leaf is idle.
func (f *leaf) exitIdle() {
	if f.state == connectivity.Idle {
		f.connecting()
		f.startPass()
	}
}

func (f *leaf) close() {
	f.state = connectivity.Shutdown
	f.delay.stop()
	f.rest.stop()
	f.addrs, f.next = nil, 0
	f.keep(nil)
}

// remove shuts a subchannel down.
func (f *leaf) remove(s *subchannel) {
	f.subs.Delete(s.addr)
	s.shutdown()
}

// keep removes all subchannels but one.
func (f *leaf) keep(kept *subchannel) {
	for _, s := range f.subs.Values() {
		if s != kept {
			f.remove(s)
		}
	}
}

// startPass tries the addresses from the first one on.
func (f *leaf) startPass() {
	f.firstPass, f.failures, f.next = true, 0, 0
	for _, s := range f.subs.Values() {
		s.failed = false
	}
	f.attempt()
}

// attempt connects to the current address, or to the first one behind it whose subchannel doesn't wait
// after a failure.
func (f *leaf) attempt() {
	var err error
	for ; f.next < len(f.addrs); f.next++ {
		s, ok := f.subs.Get(f.addrs[f.next])
		if !ok {
			s = &subchannel{leaf: f, addr: f.addrs[f.next], state: connectivity.Idle}
			f.subs.Set(s.addr, s)
		}
		if s.state != connectivity.TransientFailure {
			if s.state == connectivity.Idle {
				s.connect()
			}
			f.startDelay()
			return
		}
		s.failed, err = true, s.err
	}
	f.endPass(err)
}

// startDelay makes the next attempt after a while.
func (f *leaf) startDelay() {
	f.delay.stop()
	if f.next+1 < len(f.addrs) {
		f.delay = f.policy.channel.startTimer(attemptDelay, f.attemptNext)
	}
}

func (f *leaf) attemptNext() {
	if f.next++; f.next < len(f.addrs) {
		f.attempt()
	}
}

// endPass ends the pass, if all addresses have been tried and their subchannels have failed.
func (f *leaf) endPass(err error) {
	if f.next < len(f.addrs) {
		return
	}
	for _, s := range f.subs.All() {
		if !s.failed {
			return
		}
	}
	f.firstPass = false
	f.fail(err)
	for _, s := range f.subs.Values() {
		if s.state == connectivity.Idle {
			s.connect()
		}
	}
}

// subChanged takes a change of a subchannel. err is the error of TRANSIENT_FAILURE.
func (f *leaf) subChanged(s *subchannel, from connectivity.State, err error) {
	switch {
	case s.state == connectivity.Ready:
		f.delay.stop()
		f.keep(s)
		f.seek(s.addr)
		if !f.checkHealth(s) {
			f.conn = s.link.conn
			f.set(connectivity.Ready)
		}
	case from == connectivity.Ready, from == connectivity.Connecting && s.state == connectivity.Idle:
		f.delay.stop()
		f.keep(s)
		f.next = 0
		if f.useless > uselessMost {
			f.takeRest()
		} else {
			f.set(connectivity.Idle)
		}
	case s.state == connectivity.Connecting:
		if !s.sticky {
			f.connecting()
		}
	case s.state == connectivity.Idle:
		if !f.firstPass {
			s.connect()
		}
	case f.firstPass:
		f.failedInPass(s, err)
	default:
		if f.failures++; f.failures%f.subs.Len() == 0 {
			f.fail(err)
		}
	}
}

// failedInPass takes a failure: the next address is due if it was the latest attempt that failed.
func (f *leaf) failedInPass(s *subchannel, err error) {
	s.failed, s.sticky = true, true
	if f.next < len(f.addrs) {
		if current, _ := f.subs.Get(f.addrs[f.next]); current == s {
			f.delay.stop()
			if f.next++; f.next < len(f.addrs) {
				f.attempt()
				return
			}
		}
	}
	f.endPass(err)
}

// unique returns addrs without repetitions. It adds them to seen.
func unique(addrs []resolver.Address, seen *resolver.AddressMapV2[bool]) (once []resolver.Address) {
	for _, addr := range addrs {
		if ok, _ := seen.Get(addr); !ok {
			seen.Set(addr, true)
			once = append(once, addr)
		}
	}
	return once
}

// interleave alternates the families of addresses, beginning with the first address's family (RFC
// 8305, section 4). Names are a family of their own.
func interleave(addrs []resolver.Address) (mixed []resolver.Address) {
	var families [3][]resolver.Address
	var order []int
	for _, addr := range addrs {
		i := family(addr.Addr)
		if len(families[i]) == 0 {
			order = append(order, i)
		}
		families[i] = append(families[i], addr)
	}
	for len(mixed) < len(addrs) {
		for _, i := range order {
			if len(families[i]) > 0 {
				mixed = append(mixed, families[i][0])
				families[i] = families[i][1:]
			}
		}
	}
	return mixed
}

// family returns 1 for IPv4 and 2 for IPv6, with a port; 0 for anything else.
func family(addr string) int {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return 0
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return 0
	case ip.Is4() || ip.Is4In6():
		return 1
	}
	return 2
}
