//go:build percore_faults && !percore_net

package percore

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// These tests play a short session between a server of ours and a client of package net, in
// which one system call of the server fails, and look at the behaviour that becomes of it:
//
//	TestFaultSweep    the N-th call of its kind, for every kind and every N, with
//	                  each errno that its man page lists: the outcome is the one
//	                  that net would give
//	TestFaultStorm    calls at random: no hang, no leak, no wrong byte
//	TestAcceptFaults  accept4 several times in a row
//
// A failure prints the command that plays it again.
var (
	faultOp    = flag.String("faults.op", "", "sweeps: fail only this system call")
	faultN     = flag.Int64("faults.n", 0, "sweeps: fail only the n-th such call")
	faultErrno = flag.String("faults.errno", "", "sweeps: fail only with this errno")
	faultSeed  = flag.Uint64("faults.seed", 0, "TestFaultStorm: play only this seed")
)

// errnosOf lists the errors in the man page of each call, and for recv and send the ones that
// tcp(7) and ip(7) add. epoll_pwait's EBADF, EFAULT and EINVAL are left out: they would be our own
// mistakes, and the loop panics on them.
var errnosOf = map[string][]syscall.Errno{
	"read": {
		unix.EAGAIN, unix.EINTR, unix.EBADF, unix.ECONNREFUSED, unix.EFAULT, unix.EINVAL, unix.ENOMEM, unix.ENOTCONN,
		unix.ENOTSOCK, unix.ECONNRESET, unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.EPIPE, unix.EIO,
	},
	"write": {
		unix.EAGAIN, unix.EINTR, unix.EACCES, unix.EALREADY, unix.EBADF, unix.ECONNRESET, unix.EDESTADDRREQ, unix.EFAULT,
		unix.EINVAL, unix.EISCONN, unix.EMSGSIZE, unix.ENOBUFS, unix.ENOMEM, unix.ENOTCONN, unix.ENOTSOCK, unix.EOPNOTSUPP,
		unix.EPIPE, unix.ETIMEDOUT, unix.EHOSTUNREACH,
	},
	"accept4": {
		unix.EAGAIN, unix.EINTR, unix.ECONNABORTED, unix.EPROTO, unix.ENETDOWN, unix.ENOPROTOOPT, unix.EHOSTDOWN, unix.ENONET,
		unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM, unix.EPERM, unix.EOPNOTSUPP,
		unix.EBADF, unix.EFAULT, unix.EINVAL, unix.ENOTSOCK,
	},
	"epoll_create1": {unix.EINVAL, unix.EMFILE, unix.ENFILE, unix.ENOMEM},
	"epoll_ctl":     {unix.EBADF, unix.EEXIST, unix.EINVAL, unix.ELOOP, unix.ENOENT, unix.ENOMEM, unix.ENOSPC, unix.EPERM},
	"epoll_pwait":   {unix.EINTR},
	"eventfd2":      {unix.EINVAL, unix.EMFILE, unix.ENFILE, unix.ENODEV, unix.ENOMEM},
	"ppoll":         {unix.EFAULT, unix.EINTR, unix.EINVAL, unix.ENOMEM},
	"fcntl":         {unix.EACCES, unix.EBADF, unix.EINVAL, unix.EMFILE, unix.EPERM},
	"getsockname":   {unix.EBADF, unix.EFAULT, unix.EINVAL, unix.ENOBUFS, unix.ENOTSOCK},
	"getsockopt":    {unix.EBADF, unix.EFAULT, unix.EINVAL, unix.ENOPROTOOPT, unix.ENOTSOCK},
	"setsockopt":    {unix.EBADF, unix.EFAULT, unix.EINVAL, unix.ENOPROTOOPT, unix.ENOTSOCK, unix.EDOM, unix.ENOMEM},
	"shutdown":      {unix.EBADF, unix.EINVAL, unix.ENOTCONN, unix.ENOTSOCK},
	"close":         {unix.EBADF, unix.EINTR, unix.EIO, unix.ENOSPC, unix.EDQUOT},
}

// A session is one server with one client, played once.
type session struct {
	network, address string

	at      atomic.Pointer[string] // the server's current step
	reports atomic.Int32           // calls of OnAcceptError

	// its result
	listenErr   error
	acceptErr   error
	failedAt    string // the server's step that failed, and why
	failure     error
	closeErr    error // of the connection
	lnCloseErr  error
	clientErr   error
	redials     int
	taken       int // how much the kernel took, as a failed Write reports it
	arrived     int // how much of a stretch the client had received when its reading failed
	stats       ListenerStats
	reported    atomic.Pointer[error]
	background  sync.WaitGroup // clients that an injected EAGAIN needs
	wrongBytes  atomic.Pointer[string]
	listenerLck sync.Mutex
	listener    net.Listener
}

// Where the server is before it has a connection and after it has had it.
const (
	atListen = "listen"
	atAccept = "accept"
	atClose  = "close"
)

func (s *session) enter(step string) { s.at.Store(&step) }
func (s *session) place() string     { return *s.at.Load() }

// play plays the session from beginning to end. It returns when the server has ended, but not
// necessarily everything that it leaves behind.
func (s *session) play() {
	s.enter(atListen)
	lc := ListenConfig{OnAcceptError: func(err error) {
		s.reported.Store(&err)
		s.reports.Add(1)
	}}
	ln, err := lc.Listen(context.Background(), s.network, s.address)
	if err != nil {
		s.listenErr = err
		return
	}
	s.listenerLck.Lock()
	s.listener = ln
	s.listenerLck.Unlock()
	s.enter(atAccept)
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		s.serve(ln)
		// A client that is not served gets an answer, too.
		s.enter(atClose)
		s.stats = ln.(*Listener).Stats()
		s.lnCloseErr = ln.Close()
	}()
	s.clientErr = s.client(ln.Addr())
	<-serving
	s.background.Wait()
}

// serve accepts until it has played the script with one client.
func (s *session) serve(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			s.acceptErr = err
			return
		}
		greeting := make([]byte, 1)
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		s.enter("greeting")
		_, err = c.Read(greeting)
		if err == io.EOF { // a connection that came only to make the listener readable
			c.Close()
			s.enter(atAccept)
			continue
		}
		s.record("greeting", err)
		if err == nil {
			s.script(c.(*Conn))
		}
		s.enter(atClose)
		s.closeErr = c.Close()
		return
	}
}

// record notes the server's first failure, and reports whether there is no failure yet.
func (s *session) record(step string, err error) bool {
	if err != nil && s.failure == nil {
		s.failedAt, s.failure = step, err
	}
	return err == nil
}

// The traffic in either direction: four messages with an answer to each, a bulk
// larger than the socket's buffer, and last words.
const (
	messages     = 4
	messageBytes = 24
	bulkBytes    = 48 << 10
	sendBuffer   = 8 << 10
)

// text returns the i-th stretch of one side's stream. No two stretches are alike.
func text(side byte, i, n int) []byte {
	b := make([]byte, n)
	random := rand.New(rand.NewPCG(uint64(side), uint64(i)))
	for j := range b {
		b[j] = byte(random.Uint32())
	}
	return b
}

// check notes wrong bytes.
func (s *session) check(who string, got, want []byte) {
	if !bytes.Equal(got, want) {
		wrong := fmt.Sprintf("%s got wrong bytes: %x, want %x", who, truncate(got), truncate(want))
		s.wrongBytes.CompareAndSwap(nil, &wrong)
	}
}

func truncate(b []byte) []byte { return b[:min(len(b), 32)] }

// script is the server's part, until something fails.
func (s *session) script(c *Conn) {
	buf := make([]byte, bulkBytes)
	isTCP := strings.HasPrefix(s.network, "tcp")
	// receive reads the client's i-th stretch into a slice that is longer by spare bytes. With no
	// spare bytes, a read can't know that it got everything.
	receive := func(i, n, spare int) error {
		got := 0
		for got < n {
			m, err := c.Read(buf[got : n+spare])
			s.check("the server", buf[got:got+m], text('c', i, n)[got:got+m])
			if got += m; err != nil {
				return err
			}
		}
		return nil
	}
	send := func(i, n int) error {
		m, err := c.Write(text('s', i, n))
		s.taken = m
		if err == nil && m != n {
			err = fmt.Errorf("Write: %d bytes of %d without an error", m, n)
		}
		return err
	}
	hangs := func() error { return c.SetDeadline(time.Now().Add(testnet.HangTimeout)) }
	steps := []struct {
		name string
		do   func() error
	}{
		{"read", func() error { return receive(0, messageBytes, 100) }},
		{"write", func() error { return send(0, messageBytes) }},
		{"read all", func() error { return receive(1, messageBytes, 0) }},
		{"addresses", func() error {
			c.LocalAddr() // nil if not available, as in package net
			if c.RemoteAddr() == nil {
				return errors.New("no remote address")
			}
			return nil
		}},
		{"set", func() error { return c.SetWriteBuffer(sendBuffer) }},
		{"set", func() error { return c.SetReadBuffer(4 * bulkBytes) }},
		{"set", func() error { return c.SetKeepAlive(true) }},
		{"set", func() error {
			if isTCP {
				return c.SetNoDelay(true) // as it is: Nagle's pauses would be no use here
			}
			return nil
		}},
		{"set", func() error { return c.SetLinger(-1) }},
		{"write", func() error { return send(1, messageBytes) }},
		{"callback", func() error {
			called := make(chan error, 1)
			if err := c.OnReadable(func(err error) { called <- err }); err != nil {
				return err
			}
			return <-called
		}},
		{"read", func() error { return receive(2, messageBytes, 1) }},
		{"past deadline", func() error {
			c.SetReadDeadline(time.Unix(1, 0))
			if n, err := c.Read(buf); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("Read: got %d, %w, want a timeout", n, err)
			}
			return hangs()
		}},
		{"deadline", func() error {
			c.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
			if n, err := c.Read(buf); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				return fmt.Errorf("Read: got %d, %w, want a timeout", n, err)
			}
			return hangs()
		}},
		{"write", func() error { return send(2, messageBytes) }},
		{"read", func() error { return receive(3, messageBytes, 100) }},
		{"write", func() error { return send(3, messageBytes) }},
		{"write", func() error { return send(4, bulkBytes) }},
		{"read", func() error { return receive(4, bulkBytes, 0) }},
		{"file", func() error {
			f, err := c.File()
			if err != nil {
				return err
			}
			return f.Close()
		}},
		{"read", func() error {
			if n, err := c.Read(buf); n != 0 || err != io.EOF {
				return fmt.Errorf("Read: got %d, %w, want the end of the stream", n, err)
			}
			return nil
		}},
		{"shutdown", c.CloseRead},
		{"write", func() error { return send(5, messageBytes) }},
		{"shutdown", c.CloseWrite},
	}
	for _, step := range steps {
		s.enter(step.name)
		if !s.record(step.name, step.do()) {
			return
		}
	}
}

// redialsMax is so high that no storm hits every connection: the server waits for one that it can serve.
const redialsMax = 30

// client is the other end. If its connection is lost before the server has
// answered anything, it tries again, as clients do.
func (s *session) client(addr net.Addr) error {
	for {
		answered, err := s.clientOnce(addr)
		if err == nil || answered || s.redials == redialsMax {
			return err
		}
		s.redials++
	}
}

func (s *session) clientOnce(addr net.Addr) (answered bool, err error) {
	c, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		return false, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	receive := func(i, n int) error {
		got := make([]byte, n)
		m, err := io.ReadFull(c, got)
		s.check("the client", got[:m], text('s', i, n)[:m])
		s.arrived = m
		return err
	}
	if _, err := c.Write([]byte{'!'}); err != nil {
		return false, err
	}
	for i := range messages {
		if _, err := c.Write(text('c', i, messageBytes)); err != nil {
			return i > 0, err
		}
		if err := receive(i, messageBytes); err != nil {
			return i > 0, err
		}
	}
	if err := receive(4, bulkBytes); err != nil {
		return true, err
	}
	if _, err := c.Write(text('c', 4, bulkBytes)); err != nil {
		return true, err
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return true, err
	}
	if err := receive(5, messageBytes); err != nil {
		return true, err
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		return true, fmt.Errorf("at the end: got %d, %w, want the end of the stream", n, err)
	}
	return true, nil
}

// spuriousEAGAIN makes an injected EAGAIN true: the kernel promises an event after it. It returns
// false if it can't. Then the EAGAIN would not be a possible fault of the kernel.
func (s *session) spuriousEAGAIN(op string, fd int) bool {
	switch op {
	case "read":
		// Setting SO_RCVLOWAT makes tcp_set_rcvlowat check whether the socket is readable, and raise an edge.
		if s.network != "tcp4" {
			return false
		}
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1) == nil
	case "write":
		// Setting SO_SNDBUF calls sk_write_space, which raises an edge.
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer) == nil
	case "accept4":
		// Another connection comes.
		s.listenerLck.Lock()
		addr := s.listener.Addr()
		s.listenerLck.Unlock()
		s.background.Go(func() {
			if c, err := net.Dial(addr.Network(), addr.String()); err == nil {
				c.Close()
			}
		})
	}
	return true
}

// A fault is a call that was made to fail.
type fault struct {
	op    string
	n     int64 // the number of the call among calls of op in the session, from 1
	errno syscall.Errno
	at    string // the server's step at that time
}

func (f *fault) String() string {
	return fmt.Sprintf("%s number %d, during %q, fails with %s", f.op, f.n, f.at, unix.ErrnoName(f.errno))
}

// aim makes the n-th call of op in the session fail. It returns how many calls there have been, and
// the fault once it has happened.
func (s *session) aim(op string, n int64, errno syscall.Errno) (calls *atomic.Int64, hit *atomic.Pointer[fault], restore func()) {
	calls, hit = new(atomic.Int64), new(atomic.Pointer[fault])
	restore = sys.Inject(func(called sys.Op, fd int) syscall.Errno {
		if called.String() != op || calls.Add(1) != n {
			return 0
		}
		if errno == unix.EAGAIN && !s.spuriousEAGAIN(op, fd) {
			return 0
		}
		hit.Store(&fault{op, n, errno, s.place()})
		return errno
	})
	return calls, hit, restore
}

// An outcome is the required consequence of a fault.
type outcome int

const (
	invisible   outcome = iota // no visible effect
	noListener                 // Listen fails with the errno
	eitherOr                   // one of the two above: an option that Listen sets may be one that net does without
	noAccept                   // Accept fails with the errno
	backsOff                   // accepting backs off, this is reported, and then everything works
	stepFails                  // the step fails with the errno, wrapped as by net
	closingFail                // Close may return the error, and everything else works
)

// expected returns the required consequence of a fault. The reference is package net: it
// shows an errno to the user unless it says try again, or comes from a call whose result
// it does not use. Where ours is meant to be better, in Accept, the reference is DESIGN:
// an error of one connection is skipped, want of resources is waited out.
func expected(f *fault) outcome {
	switch {
	case f.errno == unix.EINTR && f.op != "close" && f.op != "fcntl", f.errno == unix.EAGAIN:
		return invisible
	case f.op == "epoll_pwait", f.op == "ppoll", f.op == "getsockopt", f.op == "getsockname":
		return invisible
	case f.op == "close":
		return closingFail
	case f.op == "setsockopt" && f.at == atListen:
		return eitherOr
	case f.at == atListen:
		return noListener
	case f.op == "accept4" && isSkipped(f.errno):
		return invisible
	case f.op == "accept4" && isBroken(f.errno):
		return noAccept
	case f.at == atAccept:
		return backsOff
	case f.at == atClose:
		return invisible // deregistering: the descriptor is closed anyway
	}
	return stepFails
}

// opOf is package net's name for each step of the script.
var opOf = map[string]string{
	"greeting": "read", "read": "read", "read all": "read", "past deadline": "read", "deadline": "read",
	"write": "write", "set": "set", "file": "file", "shutdown": "close", "callback": "set",
}

// judge returns what is wrong with the end of the session, given the fault.
func (s *session) judge(f *fault) (complaints []string) {
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	if wrong := s.wrongBytes.Load(); wrong != nil {
		complain("%s", *wrong)
	}
	want := invisible
	if f != nil {
		want = expected(f)
	}
	if want == eitherOr {
		want = invisible
		if s.listenErr != nil {
			want = noListener
		}
	}

	wantListen, wantAccept, wantStep := want == noListener, want == noAccept, want == stepFails
	if (s.listenErr != nil) != wantListen {
		complain("Listen: got %v, want failure %t", s.listenErr, wantListen)
	}
	if wantListen {
		complaints = append(complaints, complaintsAbout(s.listenErr, "listen", f)...)
		return complaints
	}
	if (s.acceptErr != nil) != wantAccept {
		complain("Accept: got %v, want failure %t", s.acceptErr, wantAccept)
	}
	if wantAccept {
		complaints = append(complaints, complaintsAbout(s.acceptErr, "accept", f)...)
	}
	if (s.failure != nil) != wantStep {
		complain("step %q: got %v, want failure %t", s.failedAt, s.failure, wantStep)
	}
	if wantStep {
		if s.failedAt != f.at {
			complain("got a failure of %q, want it in the step of the fault", s.failedAt)
		}
		complaints = append(complaints, complaintsAbout(s.failure, opOf[f.at], f)...)
		if f.at == "write" && s.taken != s.arrived {
			complain("Write: got a count of %d, want %d, which is what arrived", s.taken, s.arrived)
		}
	}
	// A connection that is shut down looks the same to the client as one that is
	// closed because that failed.
	if wantClient := !wantAccept && !wantStep; (s.clientErr == nil) != wantClient && (f == nil || f.op != "shutdown") {
		complain("the client: got %v, want success %t", s.clientErr, wantClient)
	}

	wantBackoff := want == backsOff
	if got := s.stats.Backoffs > 0; got != wantBackoff || s.reports.Load() > 1 {
		complain("got %d backoffs, %d reports, want any: %t", s.stats.Backoffs, s.reports.Load(), wantBackoff)
	}
	if wantBackoff && s.reports.Load() == 1 && !errors.Is(*s.reported.Load(), f.errno) {
		complain("got a report of %v, want one of %v", *s.reported.Load(), f.errno)
	}
	for what, err := range map[string]error{"Close": s.closeErr, "Close of the listener": s.lnCloseErr} {
		if err != nil && (want != closingFail || len(complaintsAbout(err, "close", f)) != 0) {
			complain("%s: got %v, want nil", what, err)
		}
	}
	return complaints
}

// complaintsAbout checks that an error is built as package net builds its own:
// an OpError, the name of the system call, the errno; and one clear line.
func complaintsAbout(err error, op string, f *fault) (complaints []string) {
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	var operr *net.OpError
	if !errors.As(err, &operr) || operr.Op != op || !errors.Is(err, f.errno) {
		complain("got error %v, want an OpError of %q that is %v", err, op, f.errno)
		return complaints
	}
	if _, again := operr.Err.(*net.OpError); again || strings.Contains(err.Error(), "\n") {
		complain("got error %q, want one clear line", err)
	}
	// package net wraps all but close's own.
	var sysErr *os.SyscallError
	if f.op != "close" && (!errors.As(err, &sysErr) || sysErr.Syscall != f.op) {
		complain("got error %v, want %q named in it", err, f.op)
	}
	return complaints
}

// settle waits until everything that a session started has ended, and names what has not.
func settle(fds, goroutines int) string {
	if g := defaultGroup.group; g != nil {
		select {
		case <-g.Stopped():
		case <-time.After(testnet.HangTimeout):
			return "the group of loops goes on"
		}
	}
	for deadline := time.Now().Add(testnet.HangTimeout); ; {
		nowFDs, nowGoroutines := testnet.CountFDs(), runtime.NumGoroutine()
		if nowFDs <= fds && nowGoroutines <= goroutines {
			return ""
		}
		if time.Now().After(deadline) {
			return fmt.Sprintf("%d descriptors and %d goroutines are left behind", nowFDs-fds, nowGoroutines-goroutines)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// newSession makes a session on a network.
func newSession(t *testing.T, network string) *session {
	switch network {
	case "unix":
		_, address := testnet.Address(t, testnet.Abstract)
		return &session{network: network, address: address}
	default:
		return &session{network: network, address: "127.0.0.1:0"}
	}
}

// TestFaultSweep fails each call of the session, with each errno, one at a time.
func TestFaultSweep(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			testnet.NoLeaks(t)
			fds, goroutines := testnet.CountFDs(), runtime.NumGoroutine()
			warmUp := newSession(t, network) // lets packages set up their permanent state
			warmUp.play()
			complaints := warmUp.judge(nil)
			if left := settle(fds, goroutines); left != "" {
				complaints = append(complaints, left)
			}
			if len(complaints) != 0 {
				t.Fatalf("without a fault: %s", strings.Join(complaints, "; "))
			}
			for _, op := range slices.Sorted(maps.Keys(errnosOf)) {
				if *faultOp == "" || *faultOp == op {
					sweep(t, network, op, fds, goroutines)
				}
			}
		})
	}
}

// sweepFaults has play make the n-th call of op fail with an errno, for every n and each errno, one
// at a time, and returns how many did. play reports whether there was an n-th call, and whether it
// was made to fail. Flags may ask for less.
func sweepFaults(op string, errnos []syscall.Errno, play func(n int64, errno syscall.Errno) (reached, hit bool)) (hits int) {
	// The number of calls may differ a little each time. The sweep is over when none has reached the n-th.
	for n, more := max(*faultN, 1), true; more; n++ {
		more = false
		for _, errno := range errnos {
			if *faultErrno != "" && *faultErrno != unix.ErrnoName(errno) {
				continue
			}
			reached, hit := play(n, errno)
			if hit {
				hits++
			}
			more = (more || reached) && *faultN == 0
		}
	}
	return hits
}

// playAgain says how to play one fault of a sweep.
func playAgain(t testing.TB, op string, n int64, errno syscall.Errno) string {
	return fmt.Sprintf("\nplay again: go test -tags percore_faults -run '%s' -cpu %d . -faults.op=%s -faults.n=%d -faults.errno=%s",
		t.Name(), runtime.GOMAXPROCS(0), op, n, unix.ErrnoName(errno))
}

// sweep fails each call of op.
func sweep(t *testing.T, network, op string, fds, goroutines int) {
	t.Helper()
	hits := sweepFaults(op, errnosOf[op], func(n int64, errno syscall.Errno) (reached, hit bool) {
		s := newSession(t, network)
		calls, aimed, restore := s.aim(op, n, errno)
		testnet.Within(t, fmt.Sprintf("a session in which %s number %d fails with %s", op, n, unix.ErrnoName(errno)), s.play)
		restore()
		f := aimed.Load()
		complaints := s.judge(f)
		fail := t.Errorf
		if left := settle(fds, goroutines); left != "" {
			complaints = append(complaints, left)
			fail = t.Fatalf // and would be left behind by all that follow
		}
		if len(complaints) != 0 {
			fail("%v: %s%s", f, strings.Join(complaints, "; "), playAgain(t, op, n, errno))
		}
		return calls.Load() >= n, f != nil
	})
	// Not every network, and not every machine, needs every call.
	optional := map[string]bool{"ppoll": true, "getsockname": true}
	if hits == 0 && !optional[op] && *faultErrno == "" && *faultN == 0 {
		t.Errorf("no %s was made to fail: has the session stopped needing it?", op)
	}
	t.Logf("%s: %d faults", op, hits)
}

// TestFaultStorm fails calls at random, several in a session. The outcome can't be predicted, but
// the session ends, leaves nothing behind, and has no wrong byte.
func TestFaultStorm(t *testing.T) {
	const sessions = 300
	for _, network := range []string{"tcp4", "unix"} {
		t.Run(network, func(t *testing.T) {
			testnet.NoLeaks(t)
			fds, goroutines := testnet.CountFDs(), runtime.NumGoroutine()
			newSession(t, network).play()
			settle(fds, goroutines)
			first, last := uint64(1), uint64(sessions)
			if *faultSeed != 0 {
				first, last = *faultSeed, *faultSeed
			} else {
				// Use other seeds each time, except in the first half.
				last = sessions / 2
				for range sessions / 2 {
					playStorm(t, network, rand.Uint64(), fds, goroutines)
				}
			}
			for seed := first; seed <= last; seed++ {
				playStorm(t, network, seed, fds, goroutines)
			}
		})
	}
}

// playStorm plays one session in which a few calls fail.
func playStorm(t *testing.T, network string, seed uint64, fds, goroutines int) {
	t.Helper()
	s := newSession(t, network)
	var mu sync.Mutex
	var faults []string
	random := rand.New(rand.NewPCG(seed, 0))
	rarity := 10 + random.IntN(100)
	calls := map[sys.Op]int64{}
	restore := sys.Inject(func(op sys.Op, fd int) syscall.Errno {
		mu.Lock()
		defer mu.Unlock()
		calls[op]++
		if random.IntN(rarity) != 0 {
			return 0
		}
		errnos := errnosOf[op.String()]
		errno := errnos[random.IntN(len(errnos))]
		if errno == unix.EAGAIN && !s.spuriousEAGAIN(op.String(), fd) {
			return 0
		}
		faults = append(faults, (&fault{op.String(), calls[op], errno, s.place()}).String())
		return errno
	})
	testnet.Within(t, fmt.Sprintf("seed %d", seed), s.play)
	restore()
	var complaints []string
	if wrong := s.wrongBytes.Load(); wrong != nil {
		complaints = append(complaints, *wrong)
	}
	if s.failure == nil && s.acceptErr == nil && s.listenErr == nil && s.clientErr != nil {
		complaints = append(complaints, fmt.Sprintf("the server saw no error, but the client %v", s.clientErr))
	}
	for what, err := range map[string]error{"server": s.failure, "accept": s.acceptErr, "listen": s.listenErr, "client": s.clientErr} {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			complaints = append(complaints, fmt.Sprintf("%s: a hang: %v", what, err))
		}
	}
	fail := t.Errorf
	if left := settle(fds, goroutines); left != "" {
		complaints = append(complaints, left)
		fail = t.Fatalf // and would be left behind by all that follow
	}
	if len(complaints) != 0 {
		fail("%s\n\t%s\nplay again: go test -tags percore_faults -run 'TestFaultStorm/%s' -cpu %d . -faults.seed=%d",
			strings.Join(complaints, "; "), strings.Join(faults, "\n\t"), network, runtime.GOMAXPROCS(0), seed)
	}
}

// TestAcceptFaults makes accept4 fail several times in a row, and checks how Accept handles that on
// every shape of listener.
func TestAcceptFaults(t *testing.T) {
	const times = 4
	for _, errno := range errnosOf["accept4"] {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			forEachShape(t, func(t *testing.T, open func(testing.TB, ListenConfig) *Listener) {
				var reports atomic.Int32
				ln := open(t, ListenConfig{Group: newGroup(t, 2), OnAcceptError: func(err error) {
					reports.Add(1)
					if err.Error() != "accept4: "+errno.Error() {
						t.Errorf("OnAcceptError: got %v, want accept4's %v", err, errno)
					}
				}})
				var calls atomic.Int32
				defer sys.Inject(func(op sys.Op, fd int) syscall.Errno {
					if op.String() == "accept4" && calls.Add(1) <= times {
						return errno
					}
					return 0
				})()
				testnet.Dial(t, ln)
				var c net.Conn
				var err error
				testnet.Within(t, "Accept", func() { c, err = ln.Accept() })
				if isBroken(errno) {
					wantErr(t, "Accept", err, "accept", errno)
					return
				}
				if err != nil {
					t.Fatalf("Accept: got %v, want the connection", err)
				}
				c.Close()
				if got := calls.Load(); got <= times {
					t.Errorf("got %d calls of accept4, want more than the %d that failed", got, times)
				}
				wantBackoff, wantReports := uint64(times), int32(1)
				if isSkipped(errno) || errno == unix.EAGAIN {
					wantBackoff, wantReports = 0, 0
				}
				testnet.Eventually(t, "the report", func() bool { return reports.Load() == wantReports })
				if got := ln.Stats().Backoffs; got != wantBackoff {
					t.Errorf("got %d backoffs, want %d", got, wantBackoff)
				}
			})
		})
	}
}

// TestAcceptBackoffEnds makes Accept fail for lack of descriptors until it ends. Events that end a
// waiting Accept must also end a pausing one, and OnAcceptError may be one of them.
func TestAcceptBackoffEnds(t *testing.T) {
	forEachShape(t, func(t *testing.T, open func(testing.TB, ListenConfig) *Listener) {
		for name, tt := range map[string]struct {
			onError, end func(ln *Listener)
			want         error
		}{
			"deadline":               {end: func(ln *Listener) { ln.SetDeadline(time.Now().Add(time.Millisecond)) }, want: os.ErrDeadlineExceeded},
			"Close":                  {end: func(ln *Listener) { ln.Close() }, want: net.ErrClosed},
			"Close in OnAcceptError": {onError: func(ln *Listener) { ln.Close() }, want: net.ErrClosed},
		} {
			t.Run(name, func(t *testing.T) {
				var ln *Listener
				ln = open(t, ListenConfig{Group: newGroup(t, 2), OnAcceptError: func(error) {
					if tt.onError != nil {
						tt.onError(ln)
					}
				}})
				defer sys.Inject(func(op sys.Op, fd int) syscall.Errno {
					if op.String() == "accept4" {
						return unix.EMFILE
					}
					return 0
				})()
				testnet.Dial(t, ln)
				accepted := make(chan error, 1)
				go func() {
					_, err := ln.Accept()
					accepted <- err
				}()
				if tt.end != nil {
					// By now the pauses are so long that the end probably comes during one.
					testnet.Eventually(t, "a pause of 80 ms", func() bool { return ln.Stats().Backoffs >= 5 })
					tt.end(ln)
				}
				wantErr(t, "Accept", testnet.Receive(t, "Accept", accepted), "accept", tt.want)
			})
		}
	})
}

// TestAcceptFaultsSorted pins the class of each error of accept4, since the tests
// above ask the production code itself.
func TestAcceptFaultsSorted(t *testing.T) {
	// accept(2): "Linux accept() passes already-pending network errors on the new
	// socket as an error code from accept()"; package net skips ECONNABORTED too.
	skipped := []syscall.Errno{unix.EINTR, unix.ECONNABORTED, unix.EPROTO, unix.ENETDOWN, unix.ENOPROTOOPT,
		unix.EHOSTDOWN, unix.ENONET, unix.EHOSTUNREACH, unix.ENETUNREACH}
	broken := []syscall.Errno{unix.EBADF, unix.EFAULT, unix.EINVAL, unix.ENOTSOCK}
	for _, errno := range errnosOf["accept4"] {
		if got, want := isSkipped(errno), slices.Contains(skipped, errno); got != want {
			t.Errorf("%s: got skipped %t, want %t", unix.ErrnoName(errno), got, want)
		}
		if got, want := isBroken(errno), slices.Contains(broken, errno); got != want {
			t.Errorf("%s: got broken %t, want %t", unix.ErrnoName(errno), got, want)
		}
	}
}
