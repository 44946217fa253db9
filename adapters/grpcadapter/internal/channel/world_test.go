package channel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// Params of all tests: without jitter, moments are exact.
var testParams = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, MaxDelay: 20 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

const idleTimeout = 10 * time.Minute

// A subject is a channel: ours, or grpc-go's.
type subject interface {
	Connect()
	GetState() connectivity.State
	WaitForStateChange(context.Context, connectivity.State) bool
	ResetConnectBackoff()
	Close() error

	// call makes a call, and returns the address of the connection that it was made on.
	call(ctx context.Context, waitForReady bool) (addr string, err error)
}

// A world is a network of servers and a resolver, with a channel on it. It writes all events to a log.
type world struct {
	t        *testing.T
	resolver *manual.Resolver
	subject  subject
	parser   resolver.ClientConn // of the resolver
	balances bool                // round_robin may be the policy

	mu     sync.Mutex
	policy string
	start  time.Time
	hosts  map[string]string // what dialing does: ok (default), fail, hang, slow
	open   map[string][]*wire
	live   int      // wires
	log    []string // sorted by time, and what happens at the same moment by text
}

// A wire is an open connection in a world.
type wire struct {
	world *world
	addr  string
	drain func() // GOAWAY
	cut   func()
}

func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := time.Since(w.start).Truncate(time.Millisecond)
	w.log = append(w.log, fmt.Sprintf("%12v ", at)+fmt.Sprintf(format, args...))
}

// dialed does what the world has for addr. It fails, or returns.
func (w *world) dialed(ctx context.Context, addr string) error {
	w.note("dial %s", addr)
	w.mu.Lock()
	does := w.hosts[addr]
	w.mu.Unlock()
	takes := time.Millisecond // differs by address, so that there are no ties
	for _, b := range []byte(addr) {
		takes += time.Duration(b%32) * 101 * time.Microsecond
	}
	switch does {
	case "hang":
		takes = time.Hour
	case "slow":
		takes += 377 * time.Millisecond
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(takes):
	}
	if does == "fail" {
		return errors.New("refused by " + addr)
	}
	return nil
}

func (w *world) add(c *wire) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[c.addr] = append(w.open[c.addr], c)
	w.live++
}

func (w *world) remove(c *wire) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.open[c.addr])
	w.open[c.addr] = slices.DeleteFunc(w.open[c.addr], func(o *wire) bool { return o == c })
	w.live -= n - len(w.open[c.addr])
}

// each calls f for each open connection to addr.
func (w *world) each(addr string, f func(*wire)) {
	w.mu.Lock()
	list := slices.Clone(w.open[addr])
	w.mu.Unlock()
	for _, c := range list {
		f(c)
	}
}

// newWorld makes a world for grpc-go's channel (real) or ours.
func newWorld(t *testing.T, real bool, policy string) *world {
	w := &world{
		t: t, policy: policy, start: time.Now(), hosts: make(map[string]string), open: make(map[string][]*wire),
		resolver: manual.NewBuilderWithScheme("test"),
	}
	w.resolver.BuildCallback = func(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) {
		w.parser = cc
		w.note("build")
	}
	w.resolver.ResolveNowCallback = func(resolver.ResolveNowOptions) { w.note("resolve") }
	w.resolver.CloseCallback = func() { w.note("close resolver") }
	if real {
		w.subject = newRealChannel(w)
	} else {
		w.subject = newOurChannel(w)
	}
	return w
}

// policyConfig is a service config of our channel.
type policyConfig struct {
	serviceconfig.Config
	name string
}

// ours is our channel on a world.
type ours struct{ *Channel }

func newOurChannel(w *world) subject {
	c, err := New(Config{
		Target: "test:///target", Resolvers: []resolver.Builder{w.resolver}, ConnectParams: testParams,
		Policy: func() (string, serviceconfig.LoadBalancingConfig) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.policy, nil
		}, IdleTimeout: idleTimeout, HealthCheck: noHealthCheck,
		ParseServiceConfig: func(js string) *serviceconfig.ParseResult {
			return &serviceconfig.ParseResult{Config: policyConfig{name: strings.Split(js, `"`)[3]}}
		},
		OnServiceConfig: func(config serviceconfig.Config) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			c, ok := config.(policyConfig)
			if ok {
				w.policy = c.name
			}
			return ok
		},
		Dial: func(ctx context.Context, addr resolver.Address, link *Link) (Conn, error) {
			if err := w.dialed(ctx, addr.Addr); err != nil {
				return nil, fmt.Errorf("connection error: desc = %q", "transport: Error while dialing: "+err.Error())
			}
			return newFakeConn(w, addr.Addr, link), nil
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return ours{c}
}

func (o ours) call(ctx context.Context, waitForReady bool) (string, error) {
	o.CallStarted()
	defer o.CallEnded()
	if _, err := o.Resolved(ctx); err != nil {
		return "", err
	}
	conn, err := o.Pick(ctx, waitForReady)
	if err != nil {
		return "", err
	}
	return conn.(*fakeConn).wire.addr, nil
}

// A fakeConn is a connection of our channel. No call is open on it, so its end is its drain's. It says
// that calls were answered on it: grpc-go doesn't slow down for others.
type fakeConn struct {
	wire *wire
	link *Link
	once sync.Once
}

func newFakeConn(w *world, addr string, link *Link) *fakeConn {
	c := &fakeConn{link: link}
	c.wire = &wire{w, addr, c.Close, c.Abort}
	w.add(c.wire)
	return c
}

func (c *fakeConn) Close() { c.Abort() }

func (c *fakeConn) Abort() {
	c.once.Do(func() {
		c.wire.world.remove(c.wire)
		c.link.Ended(true)
		c.link.Gone()
	})
}

// real is grpc-go's channel on a world.
type real struct{ *grpc.ClientConn }

func newRealChannel(w *world) subject {
	cc, err := grpc.NewClient("test:///target", grpc.WithResolvers(w.resolver),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(testParams),
		grpc.WithIdleTimeout(idleTimeout),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"`+w.policy+`":{}}]}`),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			if err := w.dialed(ctx, addr); err != nil {
				return nil, err
			}
			return newRealConn(w, addr), nil
		}))
	if err != nil {
		w.t.Fatal(err)
	}
	return real{cc}
}

// ResetConnectBackoff takes a lock after grpc-go's, which reads a map without the lock that guards it.
func (r real) ResetConnectBackoff() {
	r.ClientConn.ResetConnectBackoff()
	r.GetMethodConfig("")
}

func (r real) call(ctx context.Context, waitForReady bool) (string, error) {
	var p peer.Peer
	err := r.Invoke(ctx, "/service/method", nil, nil,
		grpc.WaitForReady(waitForReady), grpc.Peer(&p), grpc.ForceCodecV2(nil), grpc.CallContentSubtype("proto"))
	if status.Code(err) == codes.Unimplemented {
		err = nil
	}
	if err != nil {
		return "", err
	}
	return p.Addr.String(), nil
}

// newRealConn connects to a server of grpc-go's, which knows no service.
func newRealConn(w *world, addr string) net.Conn {
	srv, lis := grpc.NewServer(), bufconn.Listen(64<<10)
	go srv.Serve(lis)
	client, err := lis.Dial()
	if err != nil {
		w.t.Fatal(err)
	}
	c := &wire{world: w, addr: addr, drain: func() { go srv.GracefulStop() }, cut: srv.Stop}
	w.add(c)
	return &named{Conn: client, addr: addr, end: func() { w.remove(c); go srv.Stop() }}
}

// named is a connection with an address, which calls a function when it is closed.
type named struct {
	net.Conn
	addr string
	once sync.Once
	end  func()
}

func (n *named) RemoteAddr() net.Addr { return nameAddr(n.addr) }

func (n *named) Close() error {
	n.once.Do(n.end)
	return n.Conn.Close()
}

type nameAddr string

func (nameAddr) Network() string  { return "pipe" }
func (a nameAddr) String() string { return string(a) }

// run plays a script and returns the log.
//
//	update A B / endpoints A,B C / report TEXT / config      the resolver's
//	policy NAME A B                                          the same with a service config
//	host A fail|hang|slow|ok                                 what dialing A does from here on
//	break A / drain A                                        connections to A end, or get GOAWAY
//	connect / reset / close / sleep D                        the channel's
//	call D / wait D                                          a call with a timeout; waiting for ready
func run(t *testing.T, real bool, policy, script string) (log string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, real, policy)
		w.balances = policy == "round_robin"
		closed := false
		for line := range strings.SplitSeq(script, "\n") {
			words := strings.Fields(line)
			if len(words) == 0 {
				continue
			}
			w.balances = w.balances || strings.Contains(line, "round_robin")
			w.note("> %s", strings.Join(words, " "))
			w.step(words[0], words[1:])
			closed = closed || words[0] == "close"
			synctest.Wait()
			w.note("= %v", w.subject.GetState())
		}
		if !closed {
			w.step("close", nil)
		}
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.live != 0 {
			t.Errorf("%d connections are open at the end", w.live)
		}
		log = strings.Join(sorted(w.log), "\n")
	})
	return log
}

// sorted sorts the lines between two steps that belong to one moment, and drops repetitions.
func sorted(log []string) []string {
	key := func(s string) string { return s[:13] }
	for i := 0; i < len(log); {
		j := i + 1
		for !strings.Contains(log[i], " > ") && j < len(log) && key(log[j]) == key(log[i]) && !strings.Contains(log[j], " > ") {
			j++
		}
		slices.Sort(log[i:j])
		i = j
	}
	return slices.CompactFunc(log, func(a, b string) bool { return a == b && strings.HasSuffix(a, " resolve") })
}

func addresses(names []string) (addrs []resolver.Address) {
	for _, name := range names {
		addrs = append(addrs, resolver.Address{Addr: name})
	}
	return addrs
}

func (w *world) step(op string, args []string) {
	duration := func() time.Duration {
		d, err := time.ParseDuration(args[0])
		if err != nil {
			w.t.Fatal(err)
		}
		return d
	}
	switch op {
	case "update":
		w.resolver.UpdateState(resolver.State{Addresses: addresses(args)})
	case "endpoints":
		s := resolver.State{}
		for _, arg := range args {
			s.Endpoints = append(s.Endpoints, resolver.Endpoint{Addresses: addresses(strings.Split(arg, ","))})
		}
		w.resolver.UpdateState(s)
	case "config":
		w.resolver.UpdateState(resolver.State{ServiceConfig: &serviceconfig.ParseResult{Err: errors.New("no JSON")}})
	case "policy":
		if w.parser != nil {
			js := `{"loadBalancingConfig":[{"` + args[0] + `":{}}]}`
			w.resolver.UpdateState(resolver.State{
				Addresses: addresses(args[1:]), ServiceConfig: w.parser.ParseServiceConfig(js),
			})
		}
	case "report":
		if w.parser != nil {
			w.parser.ReportError(errors.New(strings.Join(args, " ")))
		}
	case "host":
		w.mu.Lock()
		w.hosts[args[0]] = args[1]
		w.mu.Unlock()
	case "break":
		w.each(args[0], func(c *wire) { c.cut() })
	case "drain":
		w.each(args[0], func(c *wire) { c.drain() })
	case "sleep":
		time.Sleep(duration())
	case "connect":
		w.subject.Connect()
	case "reset":
		w.subject.ResetConnectBackoff()
	case "close":
		w.note("close: %v", w.subject.Close())
	case "call", "wait":
		w.calls(op == "wait", duration())
	default:
		w.t.Fatalf("unknown step %q", op)
	}
}

// calls makes as many calls, one after the other, as show all connections that calls take turns on.
func (w *world) calls(waitForReady bool, timeout time.Duration) {
	used := make(map[string]bool)
	if w.balances { // the first call may come before other endpoints are connected
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		w.subject.call(ctx, waitForReady)
		cancel()
		synctest.Wait()
	}
	for range 12 {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		addr, err := w.subject.call(ctx, waitForReady)
		cancel()
		if err != nil {
			addr = err.Error()
		}
		if i := strings.Index(addr, "latest balancer error"); i >= 0 && w.balances {
			addr = addr[:i] // which of the endpoints' errors is chance
		}
		used[addr] = true
		if ctx.Err() == context.DeadlineExceeded || !w.balances {
			break
		}
	}
	var list []string
	for addr := range used {
		list = append(list, addr)
	}
	slices.Sort(list)
	w.note("called: %s", strings.Join(list, " | "))
}
