package channel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"
)

// A testConn counts what happens to it. It ends only when the test says so.
type testConn struct {
	addr           resolver.Address
	link           *Link
	mu             sync.Mutex
	closed, aborts int
}

func (c *testConn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed++
}

func (c *testConn) Abort() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.aborts++
}

// check fails the test unless Close and Abort have been called so often.
func (c *testConn) check(t *testing.T, closed, aborts int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != closed || c.aborts != aborts {
		t.Errorf("a connection to %s: got Close %d times and Abort %d times, want %d and %d",
			c.addr.Addr, c.closed, c.aborts, closed, aborts)
	}
}

// makeChannel makes a channel whose addresses the test sets, and whose connections it gets by made.
func makeChannel(t testing.TB, change func(*Config)) (c *Channel, r *manual.Resolver, made chan *testConn) {
	t.Helper()
	r, made = manual.NewBuilderWithScheme("test"), make(chan *testConn, 100)
	config := Config{
		Target: "test:///target", Resolvers: []resolver.Builder{r}, ConnectParams: testParams,
		Dial: func(ctx context.Context, addr resolver.Address, link *Link) (Conn, error) {
			conn := &testConn{addr: addr, link: link}
			made <- conn
			return conn, nil
		},
		ParseServiceConfig: func(string) *serviceconfig.ParseResult { return new(serviceconfig.ParseResult) },
		OnServiceConfig:    func(serviceconfig.Config) bool { return true },
		Policy:             func() (string, serviceconfig.LoadBalancingConfig) { return "pick_first", nil },
		HealthCheck:        noHealthCheck,
	}
	if change != nil {
		change(&config)
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c, r, made
}

// noHealthCheck is for channels that don't look at the health of servers.
func noHealthCheck(Conn) func(context.Context, func(connectivity.State, error)) { return nil }

func pickNow(t *testing.T, c *Channel) Conn {
	t.Helper()
	conn, err := c.Pick(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// pickLater waits for a connection, even if connecting fails.
func pickLater(t *testing.T, c *Channel) Conn {
	t.Helper()
	conn, err := c.Pick(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestLateDial: a connection that is made while the channel closes is aborted. Close knows of no such
// connection, and the policy may shut its subchannel down only then.
func TestLateDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialing, dialed := make(chan struct{}), make(chan struct{})
		conn := &testConn{}
		c, r, _ := makeChannel(t, func(config *Config) {
			config.Dial = func(_ context.Context, _ resolver.Address, link *Link) (Conn, error) {
				conn.link = link
				close(dialing)
				<-dialed
				return conn, nil
			}
		})
		r.InitialState(resolver.State{Addresses: addresses([]string{"a"})})
		c.Connect()
		<-dialing
		release := make(chan struct{})
		c.policyCalls.add(func() { <-release })
		closed := make(chan error, 1)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		close(dialed)
		synctest.Wait()
		close(release)
		if err := <-closed; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		conn.check(t, 0, 1)
		conn.link.Gone()
	})
}

// TestDrain: the connection to an address that is removed is closed, not aborted. Channel.Close aborts
// it if it is still there, and the channel forgets it when it has gone.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, made := makeChannel(t, nil)
		var conns []*testConn
		for _, addr := range []string{"a", "b", "c"} {
			r.UpdateState(resolver.State{Addresses: addresses([]string{addr})})
			if conn := pickNow(t, c).(*testConn); conn.addr.Addr != addr {
				t.Errorf("got a connection to %s, want %s", conn.addr.Addr, addr)
			}
			conns = append(conns, <-made)
		}
		conns[0].check(t, 1, 0)
		conns[1].check(t, 1, 0)
		conns[2].check(t, 0, 0)
		conns[0].link.Gone()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		conns[0].check(t, 1, 0)
		conns[1].check(t, 1, 1)
		conns[2].check(t, 0, 1)
		conns[1].link.Ended(true)
		conns[1].link.Gone()
		conns[2].link.Gone()
		if len(c.links) != 0 {
			t.Errorf("%d connections are known that have gone", len(c.links))
		}
		if err := c.Close(); err != errClosing {
			t.Errorf("got %v of the second Close", err)
		}
	})
}

// TestEndedEarly: a connection may take no more calls, or have gone, before Dial returns it.
func TestEndedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		c, r, made := makeChannel(t, func(config *Config) {
			dial := config.Dial
			config.Dial = func(ctx context.Context, addr resolver.Address, link *Link) (Conn, error) {
				switch dials++; dials {
				case 1:
					link.Ended(true)
				case 2:
					link.Gone()
				}
				return dial(ctx, addr, link)
			}
		})
		r.UpdateState(resolver.State{Addresses: addresses([]string{"a"})})
		for range 2 {
			c.Connect()
			synctest.Wait()
			if state := c.GetState(); state != connectivity.Idle {
				t.Errorf("got the state %v, want IDLE", state)
			}
		}
		if first := <-made; len(c.links) != 1 || pickNow(t, c) == first || pickNow(t, c) == <-made {
			t.Error("got a connection that takes no calls, or the channel knows the wrong ones")
		}
		c.Close()
	})
}

// TestUseless: connections that end as soon as they are made, without an answer, are made more and more
// slowly, whatever asks for them, and whichever of two addresses they go to.
func TestUseless(t *testing.T) {
	const conns = 10
	var rests time.Duration
	for i := range conns - uselessMost - 1 {
		rests += Backoff(testParams.Backoff, i)
	}
	base := testParams.Backoff.BaseDelay
	for name, test := range map[string]struct {
		served bool
		lives  time.Duration
		want   time.Duration // until there is the last connection
	}{
		"useless":  {false, 0, rests},
		"short":    {false, base / 2, (conns-1)*base/2 + rests},
		"long":     {false, base, (conns - 1) * base},
		"answered": {true, 0, 0},
	} {
		for _, policy := range []string{"pick_first", "round_robin"} {
			t.Run(name+"/"+policy, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, r, made := makeChannel(t, func(config *Config) {
						config.Policy = func() (string, serviceconfig.LoadBalancingConfig) { return policy, nil }
					})
					defer c.Close()
					state := resolver.State{Endpoints: []resolver.Endpoint{{Addresses: addresses([]string{"a", "b"})}}}
					r.ResolveNowCallback = func(resolver.ResolveNowOptions) { r.UpdateState(state) }
					r.UpdateState(state)
					began := time.Now()
					for i := range conns {
						conn := pickLater(t, c).(*testConn)
						if i == conns-1 {
							break
						}
						time.Sleep(test.lives)
						conn.link.Ended(test.served)
						conn.link.Gone()
					}
					if got := time.Since(began); got != test.want || len(made) != conns {
						t.Errorf("got %d connections in %v, want %d in %v", len(made), got, conns, test.want)
					}
				})
			})
		}
	}
}

// TestUselessEnds: what ends the slowness: a connection that is of use, and ResetConnectBackoff.
func TestUselessEnds(t *testing.T) {
	for name, end := range map[string]func(c *Channel, conn *testConn){
		"an answer": func(_ *Channel, conn *testConn) { conn.link.Ended(true) },
		"a reset":   func(c *Channel, conn *testConn) { conn.link.Ended(false); c.ResetConnectBackoff() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, r, _ := makeChannel(t, nil)
				defer c.Close()
				r.UpdateState(resolver.State{Addresses: addresses([]string{"a"})})
				for range uselessMost + 1 {
					pickLater(t, c).(*testConn).link.Ended(false)
				}
				if _, err := c.Pick(t.Context(), false); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "as soon as it was made") {
					t.Errorf("got %v of a channel that rests, want Unavailable", err)
				}
				end(c, pickLater(t, c).(*testConn))
				began := time.Now()
				for range uselessMost {
					pickLater(t, c).(*testConn).link.Ended(false)
				}
				if pickLater(t, c); time.Since(began) != 0 {
					t.Errorf("got a connection after %v, want it at once", time.Since(began))
				}
			})
		})
	}
}

// TestUselessElsewhere: behind a rest the next address has its turn soon, if the first one fails now.
func TestUselessElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		c, r, _ := makeChannel(t, func(config *Config) {
			dial := config.Dial
			config.Dial = func(ctx context.Context, addr resolver.Address, link *Link) (Conn, error) {
				if dials++; dials > uselessMost+1 && addr.Addr == "a" {
					return nil, errors.New("refused")
				}
				return dial(ctx, addr, link)
			}
		})
		defer c.Close()
		r.UpdateState(resolver.State{Addresses: addresses([]string{"a", "b"})})
		for range uselessMost + 1 {
			pickLater(t, c).(*testConn).link.Ended(false)
		}
		began := time.Now()
		pickLater(t, c)
		if took, most := time.Since(began), testParams.Backoff.BaseDelay+attemptDelay; took < testParams.Backoff.BaseDelay || took > most {
			t.Errorf("got a connection after %v, want it in %v", took, most)
		}
	})
}

// TestCloseWhileDialing: Close doesn't wait for an attempt that doesn't heed its context, and aborts
// the connection that comes out of it.
func TestCloseWhileDialing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn, ended := make(chan bool), make(chan error, 1)
		c, r, made := makeChannel(t, func(config *Config) {
			dial := config.Dial
			config.Dial = func(ctx context.Context, addr resolver.Address, link *Link) (Conn, error) {
				<-goOn
				ended <- ctx.Err()
				return dial(ctx, addr, link)
			}
		})
		r.UpdateState(resolver.State{Addresses: addresses([]string{"a"})})
		c.Connect()
		waits := make(chan error)
		go func() {
			_, err := c.Pick(context.Background(), true)
			waits <- err
		}()
		synctest.Wait()
		c.Close()
		if err := <-waits; err != errClosing {
			t.Errorf("got %v of a call, want %v", err, errClosing)
		}
		close(goOn)
		if err := <-ended; err != context.Canceled {
			t.Errorf("got %v of the attempt's context, want %v", err, context.Canceled)
		}
		synctest.Wait()
		(<-made).check(t, 0, 1)
	})
}

// TestIdle: an open call keeps the channel from becoming idle, and one that has ended for the timeout.
// Idleness closes connections, but aborts none.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, made := makeChannel(t, func(config *Config) { config.IdleTimeout = time.Minute })
		r.UpdateState(resolver.State{Addresses: addresses([]string{"a"})})
		c.CallStarted()
		pickNow(t, c)
		conn := <-made
		expect := func(after time.Duration, want connectivity.State) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if state := c.GetState(); state != want {
				t.Errorf("got %v after %v more, want %v", state, after, want)
			}
		}
		expect(90*time.Second, connectivity.Ready)
		c.CallEnded()
		expect(59*time.Second, connectivity.Ready)
		conn.check(t, 0, 0)
		expect(time.Second, connectivity.Idle)
		conn.check(t, 1, 0)
		conn.link.Gone()
		if waited, err := c.Resolved(context.Background()); !waited || err != nil {
			t.Errorf("got %v, %v", waited, err)
		}
		if pickNow(t, c) == conn {
			t.Error("got a connection that was closed")
		}
		if waited, err := c.Resolved(context.Background()); waited || err != nil {
			t.Errorf("got %v, %v", waited, err)
		}
		c.Close()
		expect(time.Hour, connectivity.Shutdown)
	})
}

// TestStates: WaitForStateChange returns with each change of the state, and when its context ends.
// TestScripts has the states.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, made := makeChannel(t, nil)
		r.UpdateState(resolver.State{Addresses: addresses([]string{"a"})})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if c.WaitForStateChange(ctx, connectivity.Idle) || !c.WaitForStateChange(ctx, connectivity.Ready) {
			t.Error("the state changes of itself, or is not IDLE")
		}
		var seen []connectivity.State
		go func() {
			for s := c.GetState(); s != connectivity.Shutdown && c.WaitForStateChange(t.Context(), s); s = c.GetState() {
				seen = append(seen, s)
			}
		}()
		synctest.Wait()
		pickNow(t, c)
		synctest.Wait()
		(<-made).link.Gone()
		synctest.Wait()
		c.Close()
		synctest.Wait()
		if got := fmt.Sprint(seen); got != "[IDLE CONNECTING READY IDLE]" && got != "[IDLE READY IDLE]" {
			t.Errorf("got %s", got)
		}
	})
}

// TestPickAllocates: a call of either policy picks its connection without an allocation. TestScripts has
// the connections that calls use.
func TestPickAllocates(t *testing.T) {
	for _, policy := range []string{"pick_first", "round_robin"} {
		synctest.Test(t, func(t *testing.T) {
			c, r, _ := makeChannel(t, func(config *Config) {
				config.Policy = func() (string, serviceconfig.LoadBalancingConfig) { return policy, nil }
			})
			defer c.Close()
			r.UpdateState(resolver.State{Addresses: addresses([]string{"a", "b", "c"})})
			pickNow(t, c)
			ctx := context.Background()
			if n := testing.AllocsPerRun(100, func() {
				c.CallStarted()
				c.Pick(ctx, true)
				c.CallEnded()
			}); n != 0 {
				t.Errorf("%s: a call allocates %v times", policy, n)
			}
		})
	}
}

// TestServiceConfig: a valid config comes before Policy is called; NewAddress keeps it; one of another
// type is an error of calls.
func TestServiceConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		c, r, _ := makeChannel(t, func(config *Config) {
			config.ParseServiceConfig = func(js string) *serviceconfig.ParseResult {
				return &serviceconfig.ParseResult{Config: policyConfig{name: js}}
			}
			config.OnServiceConfig = func(config serviceconfig.Config) bool {
				c, ok := config.(policyConfig)
				got = append(got, c.name)
				return ok
			}
			config.Policy = func() (string, serviceconfig.LoadBalancingConfig) {
				got = append(got, "policy")
				return "pick_first", nil
			}
		})
		r.UpdateState(resolver.State{ServiceConfig: &serviceconfig.ParseResult{Config: &struct{ serviceconfig.Config }{}}})
		_, err := c.Pick(context.Background(), true)
		want := status.Error(codes.Unavailable, "illegal service config type: *struct { serviceconfig.Config }")
		if err == nil || err.Error() != want.Error() {
			t.Errorf("got %v, want %v", err, want)
		}
		cc := r.CC()
		r.UpdateState(resolver.State{Addresses: addresses([]string{"a"}), ServiceConfig: cc.ParseServiceConfig("x")})
		//lint:ignore SA1019 resolvers still use it
		cc.NewAddress(addresses([]string{"b"}))
		if conn := pickNow(t, c).(*testConn); conn.addr.Addr != "b" {
			t.Errorf("got a connection to %s", conn.addr.Addr)
		}
		if want := []string{"", "x", "policy", "x", "policy"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		c.Close()
	})
}

// failing is a builder that keeps the authority that it is given, and fails.
type failing struct {
	scheme    string
	err       error
	authority *string
}

func (f failing) Scheme() string { return f.scheme }
func (f failing) Build(_ resolver.Target, _ resolver.ClientConn, o resolver.BuildOptions) (resolver.Resolver, error) {
	*f.authority = o.Authority
	return nil, f.err
}

// TestBuildFails: calls fail with the error of the resolver's builder, as with grpc-go.
func TestBuildFails(t *testing.T) {
	for _, err := range []error{
		errors.New("cannot"), status.Error(codes.Internal, "cannot"), status.Error(codes.NotFound, "cannot"),
		fmt.Errorf("cannot: %w", status.Error(codes.DataLoss, "lost")),
	} {
		for _, waits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := failing{"test", err, new(string)}
				cc, newErr := grpc.NewClient("test:///x", grpc.WithResolvers(b), grpc.WithTransportCredentials(insecure.NewCredentials()))
				if newErr != nil {
					t.Fatal(newErr)
				}
				defer cc.Close()
				c, _, _ := makeChannel(t, func(config *Config) { config.Resolvers = []resolver.Builder{b} })
				defer c.Close()
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, want := real{cc}.call(ctx, waits)
				ctx, cancel = context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, got := c.Pick(ctx, waits)
				if fmt.Sprint(got) != fmt.Sprint(want) || c.GetState() != cc.GetState() {
					t.Errorf("waits %v: got %v in %v, want %v in %v", waits, got, c.GetState(), want, cc.GetState())
				}
			})
		}
	}
}

// TestCanceled: a call whose context is canceled fails as with grpc-go, before and after the resolver
// has brought addresses.
func TestCanceled(t *testing.T) {
	for _, step := range []string{"connect", "update a", "host a fail\nupdate a"} {
		var errs []error
		for _, isReal := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, isReal, "pick_first")
				w.hosts["a"] = "hang"
				for line := range strings.SplitSeq(step, "\n") {
					words := strings.Fields(line)
					w.step(words[0], words[1:])
				}
				ctx, cancel := context.WithCancel(context.Background())
				time.AfterFunc(time.Second, cancel)
				_, err := w.subject.call(ctx, true)
				errs = append(errs, err)
				w.subject.Close()
			})
		}
		if want, got := errs[0].Error(), errs[1].Error(); want != got || status.Code(errs[1]) != codes.Canceled {
			t.Errorf("after %q: got %s, want %s", step, got, want)
		}
	}
}

// TestBackoff: the first wait is the base, and others are within the jitter of what they grow to.
func TestBackoff(t *testing.T) {
	c, _, _ := makeChannel(t, func(config *Config) { config.ConnectParams.Backoff = backoff.DefaultConfig })
	for retries, want := range []float64{1, 1.6, 2.56, 4.096, 6.5536} {
		jitter := 0.2
		if retries == 0 {
			jitter = 0
		}
		for range 100 {
			got := Backoff(c.config.ConnectParams.Backoff, retries).Seconds()
			if got < want*(1-jitter)-1e-6 || got > want*(1+jitter)+1e-6 {
				t.Errorf("got %v s after %d retries, want %v with a jitter of %v", got, retries, want, jitter)
			}
		}
	}
	if got := Backoff(c.config.ConnectParams.Backoff, 1000).Seconds(); got < 96 || got > 144 {
		t.Errorf("got %v s after many retries, want 120 with a jitter of 0.2", got)
	}
}

// overriding is one that has an authority of its own.
type overriding struct{ failing }

func (overriding) OverrideAuthority(t resolver.Target) string { return "overridden-" + t.Endpoint() }

// TestTargets: targets and authorities are understood as by grpc-go, and wrong ones are refused with
// the same text.
func TestTargets(t *testing.T) {
	var authority string
	builders := []resolver.Builder{
		failing{"dns", errors.New("no"), &authority}, failing{"test", errors.New("no"), &authority},
		overriding{failing{"over", errors.New("no"), &authority}},
	}
	describe := func(target string, connect func(), closes func() error) string {
		authority = ""
		connect()
		closes()
		return target + " " + authority
	}
	for _, target := range []string{
		"", "host", "host:80", "dns:///host:80", "dns://8.8.8.8/host", "test:///x/y?q=1", "test:opaque", "test:", "TEST:///x",
		"unknown:///x", "unknown:80", ":80", "[::1]:80", "dns:///[::1]:80", "over:///end", "/path", "a b", "a/b c%20d",
		"test:///%zz", "%zz", "host%", "ünï:80", "test:///üñ ?#x", "::::", "a\x00b", "\x7f", "http://host/x", "test:///a,b;c",
	} {
		for _, ours := range []string{"", "auth"} {
			for _, creds := range []credentials.TransportCredentials{insecure.NewCredentials(), withName{insecure.NewCredentials()}} {
				cc, err := grpc.NewClient(target, grpc.WithResolvers(builders...), grpc.WithAuthority(ours), grpc.WithNoProxy(),
					grpc.WithTransportCredentials(creds))
				want := fmt.Sprint(err)
				if err == nil {
					want = describe(cc.CanonicalTarget(), cc.Connect, cc.Close)
				}
				c, err := New(Config{
					Target: target, Resolvers: builders, Authority: ours, Build: resolver.BuildOptions{DialCreds: creds},
				})
				got := fmt.Sprint(err)
				if err == nil {
					got = describe(c.CanonicalTarget(), c.Connect, c.Close)
					if c.Target() != target || c.Authority() != authority {
						t.Errorf("%q: got %q and %q", target, c.Target(), c.Authority())
					}
				}
				if got != want {
					t.Errorf("%q, %q, %q: got %q, want %q", target, ours, creds.Info().SecurityProtocol, got, want)
				}
			}
		}
	}
}

// withName are credentials with a name.
type withName struct {
	credentials.TransportCredentials
}

func (n withName) Info() credentials.ProtocolInfo {
	//lint:ignore SA1019 credentials still set it
	return credentials.ProtocolInfo{SecurityProtocol: "named", ServerName: "of-creds"}
}

// TestServerName: Dial gets the name that the server must have.
func TestServerName(t *testing.T) {
	for _, test := range []struct{ authority, ofAddr, want string }{
		{"", "", "target"}, {"", "addr", "addr"}, {"auth", "addr", "auth"}, {"auth", "", "auth"},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, r, _ := makeChannel(t, func(config *Config) { config.Authority = test.authority })
			defer c.Close()
			r.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: "a", ServerName: test.ofAddr}}})
			if got := pickNow(t, c).(*testConn).addr.ServerName; got != test.want {
				t.Errorf("%+v: got %q", test, got)
			}
		})
	}
}

// TestTogether: everything is called at the same time as everything else. At the end no connection is
// left, which TestMain checks for goroutines.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			w := newWorld(t, false, "pick_first")
			hosts := []string{"a", "b", "c", "1.1.1.1:1", "[::1]:1"}
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					for range 40 {
						host := hosts[rand.IntN(len(hosts))]
						switch rand.IntN(12) {
						case 0:
							w.step("update", hosts[:rand.IntN(len(hosts))])
						case 1:
							w.step("endpoints", []string{host, host + ",b", "c"})
						case 2:
							w.step("host", []string{host, []string{"ok", "fail", "hang", "slow"}[rand.IntN(4)]})
						case 3, 4:
							w.step("break", []string{host})
						case 5:
							w.subject.ResetConnectBackoff()
						case 6:
							w.subject.Connect()
						case 7:
							time.Sleep(time.Duration(rand.IntN(1_000_000_000)))
						case 8:
							w.mu.Lock()
							w.policy = []string{"pick_first", "round_robin"}[rand.IntN(2)]
							w.mu.Unlock()
						default:
							ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
							w.subject.call(ctx, rand.IntN(2) == 0)
							cancel()
						}
					}
				})
			}
			time.Sleep(time.Duration(rand.Int64N(10_000_000_000)))
			w.subject.Close()
			synctest.Wait()
			if c := w.subject.(ours).Channel; w.live != 0 || len(c.links) != 0 || c.policy != nil || c.resolution != nil {
				t.Errorf("left after Close: %d connections, known: %d", w.live, len(c.links))
			}
			group.Wait()
		}
	})
}
