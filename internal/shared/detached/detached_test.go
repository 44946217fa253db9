package detached

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

var (
	errGone = errors.New("gone")
	errSend = errors.New("not sent")

	errs = Errors{Slow: errors.New("slow"), Closed: errors.New("closed"), Panicked: errors.New("panicked"), Gone: errGone}
)

// outlet is one of a test's. Numbers are sent, and each counts as much as it says.
type outlet struct {
	Sender[int, *outlet]
	send  func(p []int) (goesOn bool, err error) // nil: no error
	end   func(cut error) error                  // nil: no error
	whole bool

	sent    []int // owned by the sender
	flushes int
	ends    []error
	starts  atomic.Int32
	cut     chan struct{} // has room for a token
	work    bool          // Start makes a goroutine work
}

func newOutlet() *outlet {
	o := &outlet{cut: make(chan struct{}, 1)}
	o.Init(o)
	return o
}

func (o *outlet) Send(p []int, n int, flush bool) (goesOn bool, err error) {
	if o.send != nil {
		goesOn, err = o.send(p)
	}
	if err == nil {
		o.sent = append(o.sent, p...)
	}
	if flush {
		o.flushes++
	}
	o.Sent(n)
	return goesOn, err
}

func (o *outlet) End(cut error) error {
	o.ends = append(o.ends, cut)
	if o.end == nil {
		return nil
	}
	return o.end(cut)
}

func (o *outlet) IsWhole() bool   { return o.whole }
func (o *outlet) Errors() *Errors { return &errs }
func (o *outlet) Cut()            { o.cut <- struct{}{} }

func (o *outlet) Start() {
	if o.starts.Add(1); o.work {
		go o.turn()
	}
}

// turn is a sender's.
func (o *outlet) turn() {
	if ended, sent := o.Work(); ended {
		o.Finish(sent)
	}
}

// add adds a number, as adapters do.
func (o *outlet) add(n int, flush bool) error {
	o.Lock()
	defer o.Unlock()
	if err := o.AdmitLocked(n); err != nil {
		return err
	}
	o.AddLocked(n, n)
	if flush {
		o.FlushLocked()
	}
	return nil
}

func (o *outlet) close() error {
	o.Lock()
	defer o.Unlock()
	return o.CloseLocked()
}

// TestStates: each step from each state leads to the next one of the table.
func TestStates(t *testing.T) {
	reach := map[state]func(o *outlet){
		open:    func(*outlet) {},
		closing: func(o *outlet) { _ = o.close() },
		dead:    func(o *outlet) { o.Sender.End(errGone, true) },
		over:    func(o *outlet) { _ = o.close(); o.turn() },
	}
	for _, test := range []struct {
		step string
		do   func(o *outlet)
		next map[state]state
	}{
		{"an addition", func(o *outlet) { _ = o.add(1, true) }, map[state]state{open: open, closing: closing, dead: dead, over: over}},
		{"Close", func(o *outlet) { _ = o.close() }, map[state]state{open: closing, closing: closing, dead: dead, over: over}},
		{"End", func(o *outlet) { o.Sender.End(errGone, true) }, map[state]state{open: dead, closing: dead, dead: dead, over: over}},
		{"Work", func(o *outlet) { _, _ = o.Work() }, map[state]state{open: open, closing: over, dead: dead, over: over}},
		{"Work, whole", func(o *outlet) { o.whole = true; _, _ = o.Work() }, map[state]state{open: over, closing: over, dead: dead, over: over}},
		{"Work, whose end fails", func(o *outlet) {
			o.end = func(error) error { return errSend }
			_, _ = o.Work()
		}, map[state]state{open: open, closing: closing, dead: dead, over: over}},
		{"Work, whose send fails", func(o *outlet) {
			o.send = func([]int) (bool, error) { return false, errSend }
			_ = o.add(1, true)
			_, _ = o.Work()
		}, map[state]state{open: dead, closing: over, dead: dead, over: over}},
		{"Work, whose send fails by the program's mistake", func(o *outlet) {
			o.send = func([]int) (bool, error) { return true, errSend }
			_ = o.add(1, true)
			_, _ = o.Work()
		}, map[state]state{open: open, closing: over, dead: dead, over: over}},
		{"Finish", func(o *outlet) { o.Finish(false) }, map[state]state{open: over, closing: over, dead: over, over: over}},
	} {
		for from, want := range test.next {
			o := newOutlet()
			reach[from](o)
			test.do(o)
			if o.state != want {
				t.Errorf("%s in state %d: got state %d, want %d", test.step, from, o.state, want)
			}
			if o.state == over && o.waits != 0 {
				t.Errorf("%s in state %d: %d wait at the end", test.step, from, o.waits)
			}
		}
	}
}

// TestSender: it is started when there is something to do, and never twice.
func TestSender(t *testing.T) {
	o := newOutlet()
	_ = o.add(1, true)
	if o.starts.Load() != 0 || o.IsIdle() {
		t.Error("a sender was started before the handler had returned")
	}
	o.turn()
	if !o.IsIdle() || !slices.Equal(o.sent, []int{1}) || o.flushes != 1 {
		t.Errorf("got %v sent, with %d flushes, no sender %t", o.sent, o.flushes, o.IsIdle())
	}
	for i, step := range []struct {
		do     func()
		starts int32
	}{
		{func() { _ = o.add(2, false) }, 0},
		{func() { o.Lock(); o.FlushLocked(); o.Unlock() }, 1},
		{func() { _ = o.add(3, true); _ = o.close(); o.Sender.End(errGone, true) }, 0}, // there is one
	} {
		o.starts.Store(0)
		if step.do(); o.starts.Load() != step.starts {
			t.Errorf("step %d: %d senders were started, want %d", i, o.starts.Load(), step.starts)
		}
	}
	o = newOutlet()
	o.turn()
	for o.Unsent() < sendMin && o.starts.Load() == 0 {
		_ = o.add(100, false)
	}
	if o.Unsent() < sendMin || o.starts.Load() != 1 {
		t.Errorf("%d senders were started for %d that wait without Flush", o.starts.Load(), o.Unsent())
	}
}

// TestLast: Close doesn't overtake Flush, and what is added to an answer that is whole is dropped.
func TestLast(t *testing.T) {
	for _, whole := range []bool{false, true} {
		o := newOutlet()
		o.whole = whole
		_ = o.add(1, false)
		o.send = func([]int) (bool, error) {
			o.send = nil
			o.Lock()
			o.FlushLocked()
			o.Unlock()
			return false, o.close()
		}
		o.Lock()
		o.FlushLocked()
		o.Unlock()
		want := []int{1}
		flushes := 2
		if whole {
			want, flushes = nil, 1
		}
		if ended, sent := o.Work(); !ended || !sent || !slices.Equal(o.sent, want) || o.flushes != flushes {
			t.Errorf("whole %t: got %v sent, with %d flushes; it has ended %t, with all sent %t", whole, o.sent, o.flushes, ended, sent)
		}
	}
}

// TestLimit: what waits is bounded, together with what is being sent.
func TestLimit(t *testing.T) {
	for _, drops := range []bool{false, true} {
		o := newOutlet()
		o.SetLimit(100, drops)
		o.send = func([]int) (bool, error) {
			if n := o.Unsent(); n != 1000 {
				t.Errorf("%d wait while 1000 are sent", n)
			}
			if err := o.add(1, true); err != errs.Slow {
				t.Errorf("got %v, want that there is no room", err)
			}
			return false, nil
		}
		if err := o.add(1000, true); err != nil {
			t.Errorf("got %v for one that finds nothing waiting", err)
		}
		if ended, _ := o.Work(); ended != drops {
			t.Errorf("drops %t: it has ended %t", drops, ended)
		}
		if len(o.cut) == 1 != drops {
			t.Errorf("drops %t: Cut was called %d times", drops, len(o.cut))
		}
		want := error(nil)
		if drops {
			want = errs.Slow
		}
		o.send = nil
		if err := o.add(1, true); err != want {
			t.Errorf("drops %t: got %v then, want %v", drops, err, want)
		}
	}
}

// TestEndWhileEnding: End cuts an answer whose end is being sent, and doesn't if it was sent.
func TestEndWhileEnding(t *testing.T) {
	for _, when := range []string{"never", "before the end", "while it is sent", "then"} {
		o := newOutlet()
		cut := func(now string) {
			if now == when {
				o.Sender.End(errGone, true)
			}
		}
		_ = o.close()
		cut("before the end")
		o.end = func(error) error { cut("while it is sent"); return nil }
		_, sent := o.Work()
		cut("then")
		o.Finish(sent)
		if want := when == "never" || when == "then"; sent != want {
			t.Errorf("%s: got an answer that is complete: %t, want %t", when, sent, want)
		}
		o.OnEnd(func(err error) {
			if sent != (err == nil) {
				t.Errorf("%s: OnEnd got %v", when, err)
			}
		})
		if want := when == "while it is sent"; want != (len(o.cut) == 1) {
			t.Errorf("%s: Cut was called %d times", when, len(o.cut))
		}
	}
}

// TestEndWhileSending: the first reason counts, unless the send fails by itself.
func TestEndWhileSending(t *testing.T) {
	for _, test := range []struct {
		cuts   bool
		failed error
		want   error
	}{
		{true, errSend, errGone},
		{true, nil, errGone},
		{false, errSend, errSend},
		{false, nil, errGone},
	} {
		o := newOutlet()
		o.send = func([]int) (bool, error) {
			o.Sender.End(errGone, test.cuts)
			return false, test.failed
		}
		_ = o.add(1, true)
		if ended, sent := o.Work(); !ended || sent || !slices.Equal(o.ends, []error{test.want}) {
			t.Errorf("%+v: it has ended %t, with all sent %t and the errors %v", test, ended, sent, o.ends)
		}
		if cut := len(o.cut) == 1; cut != test.cuts {
			t.Errorf("%+v: Cut was called: %t", test, cut)
		}
		if n := o.Unsent(); n != 0 {
			t.Errorf("%+v: %d wait", test, n)
		}
	}
}

// TestErrors: what the program is told.
func TestErrors(t *testing.T) {
	o := newOutlet()
	o.send = func([]int) (bool, error) { return true, errSend } // its mistake
	_ = o.add(1, true)
	_, _ = o.Work()
	if err := o.add(1, true); err != errSend {
		t.Errorf("behind a send that failed: got %v", err)
	}
	if err := o.close(); err != errSend {
		t.Errorf("Close: got %v", err)
	}
	o.turn()
	o.OnEnd(func(err error) {
		if err != errSend {
			t.Errorf("OnEnd: got %v", err)
		}
	})

	o = newOutlet()
	ended := 0
	o.OnEnd(func(err error) {
		if ended++; err != errGone {
			t.Errorf("OnEnd of an answer that nothing has ended: got %v", err)
		}
	})
	o.Finish(false)
	o.Finish(false)
	if ended != 1 {
		t.Errorf("the function of OnEnd was called %d times", ended)
	}
	if err := o.add(1, true); err != errGone {
		t.Errorf("behind the end: got %v", err)
	}
}

// TestBegin: a function that doesn't return cuts the answer.
func TestBegin(t *testing.T) {
	for name, f := range map[string]func(){
		"return": func() {},
		"panic":  func() { panic("on purpose") },
		"Goexit": runtime.Goexit,
	} {
		o, done := newOutlet(), make(chan bool)
		go func() {
			defer close(done)
			defer func() { _ = recover() }()
			o.Begin(f)
		}()
		<-done
		if o.GoesOn() != (name == "return") {
			t.Errorf("%s: the answer goes on: %t", name, o.GoesOn())
		}
	}
}

// TestBlocks: End cuts what the sender waits for besides.
func TestBlocks(t *testing.T) {
	o := newOutlet()
	if o.Blocks(true) {
		t.Error("it has ended")
	}
	o.Sender.End(errGone, true)
	if !o.Blocks(false) || len(o.cut) != 1 {
		t.Errorf("Cut was called %d times", len(o.cut))
	}
}

// TestJoin: the context ends with the one, and has the values of the other.
func TestJoin(t *testing.T) {
	type key struct{}
	own, cancel := context.WithCancel(context.Background())
	if Join(own, own) != own {
		t.Error("a context was joined with itself")
	}
	values, cancelValues := context.WithCancel(context.WithValue(context.Background(), key{}, 1))
	cancelValues()
	ctx := Join(own, values)
	child, cancelChild := context.WithCancel(ctx)
	defer cancelChild()
	if ctx.Err() != nil || child.Err() != nil || ctx.Value(key{}) != 1 {
		t.Errorf("got %v, %v and the value %v", ctx.Err(), child.Err(), ctx.Value(key{}))
	}
	cancel()
	<-child.Done()
	if ctx.Err() == nil {
		t.Error("it goes on")
	}
}

// TestMany: whatever goroutines do at the same time, what was admitted is sent in order and once, unless
// the answer is cut, and the end is told once.
func TestMany(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) { testMany(t, rand.New(rand.NewPCG(seed, 1)), fmt.Sprint("seed ", seed)) })
	}
}

func testMany(t *testing.T, rng *rand.Rand, name string) {
	o := newOutlet()
	o.work = true
	var senders, ended atomic.Int32
	var admitted []int // guarded by the Sender's lock
	fails := rng.IntN(4) == 0
	o.send = func(p []int) (bool, error) {
		if senders.Add(1) != 1 {
			t.Errorf("%s: two senders", name)
		}
		defer senders.Add(-1)
		select {
		case <-o.cut:
			return false, errSend
		default:
			runtime.Gosched()
		}
		if fails && len(o.sent) > 20 {
			return false, errSend
		}
		return false, nil
	}
	var end error
	o.OnEnd(func(err error) { ended.Add(1); end = err })
	var wg sync.WaitGroup
	var cut atomic.Bool
	for range 3 {
		kinds := make([]int, 30)
		for i := range kinds {
			kinds[i] = rng.IntN(40)
		}
		wg.Go(func() {
			for i, kind := range kinds {
				switch {
				case kind == 0 && i > 20:
					_ = o.close()
				case kind == 1 && i > 20:
					cut.Store(o.Sender.End(errGone, true) || cut.Load())
				case kind < 10:
					o.Lock()
					o.FlushLocked()
					o.Unlock()
				default:
					o.Lock()
					if o.AdmitLocked(kind) == nil {
						o.AddLocked(kind, kind)
						admitted = append(admitted, kind)
					}
					o.Unlock()
				}
			}
		})
	}
	wg.Go(o.turn) // the handler has returned
	wg.Wait()
	_ = o.close()
	synctest.Wait()
	switch {
	case ended.Load() != 1:
		t.Errorf("%s: OnEnd's function was called %d times", name, ended.Load())
	case end == nil && !slices.Equal(o.sent, admitted):
		t.Errorf("%s: got %v, want %v", name, o.sent, admitted)
	case end != nil && (len(o.sent) > len(admitted) || !slices.Equal(o.sent, admitted[:len(o.sent)])):
		t.Errorf("%s: got %v, which is not how %v begins", name, o.sent, admitted)
	case end == nil && cut.Load(), end == errGone && !cut.Load(), end == errSend && !fails:
		t.Errorf("%s: OnEnd's function got %v; the answer was cut: %t", name, end, cut.Load())
	}
	if len(o.ends) != 1 {
		t.Errorf("%s: it was ended %d times", name, len(o.ends))
	}
}
