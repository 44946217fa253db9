package httpadapter

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/admission"
	"github.com/percore/percore/internal/testnet"
)

// A workArm is a way to serve handlers that LimitWork limits.
type workArm struct {
	name    string
	http2   bool
	netHTTP bool
}

var workArms = []workArm{
	{"HTTP/1", false, false},
	{"net/http", false, true},
	{"HTTP/2", true, false},
	{"net/http's HTTP/2", true, true},
}

// protocols are those that the arm serves; nil: the http.Server's own.
func (a workArm) protocols() *http.Protocols {
	if !a.http2 {
		return nil
	}
	return clearHTTP2(false)
}

// eachWorkArm starts servers with a limit.
func eachWorkArm(t *testing.T, limits admission.Limits, exempt func(*http.Request) bool, h http.HandlerFunc, do func(t *testing.T, l *admission.Limiter, url string, client *http.Client)) {
	for _, arm := range workArms {
		t.Run(arm.name, func(t *testing.T) {
			if arm.netHTTP {
				leaveToNetHTTP(t)
			}
			l := admission.New(limits)
			protocols := arm.protocols()
			f := start(t, h, func(f *fixture) { f.srv.Protocols = protocols }, LimitWork(l, exempt))
			url, client := clientOf(t, f, nil, protocols)
			do(t, l, url, client)
		})
	}
}

// status sends a request, and returns the status of its answer, or 0.
func status(ctx context.Context, client *http.Client, url string) (code int, header http.Header) {
	r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		panic(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		return 0, nil
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, answer.Header
}

// TestLimitWork: requests wait for their turn, are refused, leave the queue, or are exempt.
func TestLimitWork(t *testing.T) {
	began, proceed := make(chan bool), make(chan bool)
	h := func(_ http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/slow":
			began <- true
			<-proceed
		case "/panic":
			panic(http.ErrAbortHandler)
		}
	}
	limits := admission.Limits{Handlers: 2, Queue: 3, Wait: testnet.HangTimeout}
	exempt := func(r *http.Request) bool { return r.URL.Path == "/healthz" }
	eachWorkArm(t, limits, exempt, h, func(t *testing.T, l *admission.Limiter, url string, client *http.Client) {
		ctx := t.Context()
		queued := func(n int) {
			t.Helper()
			testnet.Eventually(t, fmt.Sprintf("%d requests in the queue", n), func() bool { return l.Stats().Waiting == n })
		}
		for range 3 { // whose places are free again
			status(ctx, client, url+"/panic")
		}
		codes := make(chan int, 10)
		get := func(ctx context.Context, path string) {
			go func() {
				code, _ := status(ctx, client, url+path)
				codes <- code
			}()
		}
		for range 2 {
			get(ctx, "/slow")
			testnet.Receive(t, "a handler", began)
		}
		cancelled, cancel := context.WithCancel(ctx)
		get(cancelled, "/")
		queued(1)
		cancel()
		queued(0)
		if code := testnet.Receive(t, "the end of a request that is cancelled", codes); code != 0 {
			t.Errorf("a request that is cancelled got %d", code)
		}
		for i := range 3 {
			get(ctx, "/")
			queued(1 + i)
		}
		code, header := status(ctx, client, url+"/")
		if retry := header.Get("Retry-After"); code != http.StatusServiceUnavailable || retry != fmt.Sprint(int(testnet.HangTimeout/time.Second)) {
			t.Errorf("a request that is too much got %d, and Retry-After %q", code, retry)
		}
		if code, _ := status(ctx, client, url+"/healthz"); code != http.StatusOK {
			t.Errorf("a request that is exempt got %d", code)
		}
		if got, want := l.Stats(), (admission.Stats{Running: 2, Waiting: 3, Refused: 1}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		proceed <- true
		proceed <- true
		for range 5 {
			if code := testnet.Receive(t, "an answer", codes); code != http.StatusOK {
				t.Errorf("got %d", code)
			}
		}
		awaitRunning(t, l, 0)
	})
}

// TestLimitWorkWait: a request that has waited for too long is refused.
func TestLimitWorkWait(t *testing.T) {
	began, proceed := make(chan bool), make(chan bool)
	h := func(http.ResponseWriter, *http.Request) {
		began <- true
		<-proceed
	}
	eachWorkArm(t, admission.Limits{Handlers: 1, Wait: time.Millisecond}, nil, h, func(t *testing.T, l *admission.Limiter, url string, client *http.Client) {
		done := make(chan int, 1)
		go func() {
			code, _ := status(t.Context(), client, url)
			done <- code
		}()
		testnet.Receive(t, "the handler", began)
		if code, header := status(t.Context(), client, url); code != http.StatusServiceUnavailable || header.Get("Retry-After") != "1" {
			t.Errorf("got %d, and %v", code, header)
		}
		proceed <- true
		if code := testnet.Receive(t, "the answer", done); code != http.StatusOK {
			t.Errorf("got %d", code)
		}
		awaitRunning(t, l, 0)
	})
}

// awaitRunning waits until n places are taken.
func awaitRunning(t *testing.T, l *admission.Limiter, n int) {
	t.Helper()
	testnet.Eventually(t, fmt.Sprintf("%d running handlers", n), func() bool { return l.Stats().Running == n })
}

// TestLimitWorkDetached: an answer that is detached takes no place.
func TestLimitWorkDetached(t *testing.T) {
	needParking(t)
	streams := make(chan *Answer, 1)
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			_ = Detach(w, r, func(s *Answer) { streams <- s })
		}
	}
	l := admission.New(admission.Limits{Handlers: 1, Wait: testnet.HangTimeout})
	f := start(t, h, nil, LimitWork(l, nil))
	c := f.dial()
	c.send(request("/wait"))
	s := testnet.Receive(t, "an Answer", streams)
	f.awaitDetached(1)
	awaitRunning(t, l, 0)
	f.dial().wantGet("/", "")
	s.Close()
	if got := c.answer(); got != "" {
		t.Errorf("got %q", got)
	}
}

// TestLimitWorkMost: no more handlers run than may, whatever clients do.
func TestLimitWorkMost(t *testing.T) {
	var running, most atomic.Int64
	h := func(http.ResponseWriter, *http.Request) {
		n := running.Add(1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(100 * time.Microsecond) // work
		running.Add(-1)
	}
	eachWorkArm(t, admission.Limits{Handlers: 3, Queue: 10}, nil, h, func(t *testing.T, l *admission.Limiter, url string, client *http.Client) {
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				for j := range 20 {
					ctx, cancel := context.WithCancel(t.Context())
					if (i+j)%5 == 0 {
						time.AfterFunc(time.Millisecond, cancel)
					}
					if code, _ := status(ctx, client, url); code != 0 && code != http.StatusOK && code != http.StatusServiceUnavailable {
						t.Errorf("got %d", code)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		awaitRunning(t, l, 0)
		if most.Load() > 3 {
			t.Errorf("%d handlers have run at a time, want 3 at most", most.Load())
		}
	})
}
