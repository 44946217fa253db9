package debug

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/percore/percore"
)

// reading is what the page knows about one moment.
type reading struct {
	percore.Stats
	At              time.Time
	Files, FilesMax int // descriptors that are open and that may be; 0: unknown
}

// history has the readings of the last minute, oldest first. The last one is current.
type history []reading

func (h history) now() *reading { return &h[len(h)-1] }

// steadyTime is how long something has to last before the page calls it wrong: a short burst comes and
// goes between two readings, and the line would flicker.
const steadyTime = 5 * time.Second

// least returns the least value of the last few readings.
func (h history) least(of value) float64 {
	now := h.now()
	least := of(now)
	for i := range h {
		if now.At.Sub(h[i].At) <= steadyTime {
			least = min(least, of(&h[i]))
		}
	}
	return least
}

// value is something that a reading says.
type value func(*reading) float64

// seconds returns the time between the first reading and now, a second at least.
func (h history) seconds() float64 { return max(h.now().At.Sub(h[0].At).Seconds(), 1) }

// recent has the readings of all open pages. They are forgotten after a minute without a look:
// together they may take a megabyte.
var recent struct {
	sync.Mutex
	readings history
	forget   *time.Timer
}

// look takes a reading and returns it with the readings of the last minute. All open pages share them,
// and keep one a second. The first look has no others, so it sees no increase.
func look() history {
	now := reading{At: time.Now(), Stats: percore.ReadStats()}
	now.Files, now.FilesMax = descriptors()
	recent.Lock()
	defer recent.Unlock()
	kept := slices.DeleteFunc(recent.readings, func(r reading) bool { return now.At.Sub(r.At) > time.Minute })
	recent.readings = kept
	if recent.forget == nil {
		recent.forget = time.AfterFunc(time.Minute, forget)
	}
	recent.forget.Reset(time.Minute)
	all := append(slices.Clone(kept), now)
	if len(kept) == 0 || now.At.Sub(kept[len(kept)-1].At) > 900*time.Millisecond {
		recent.readings = append(kept, now)
	}
	return all
}

func forget() {
	recent.Lock()
	defer recent.Unlock()
	recent.readings = nil
}

// A check is one of the things that can be wrong.
type check struct {
	title  string                  // of the paragraph in docs/OPERATIONS.md
	says   string                  // what the amount counts
	metric string                  // of an adapter, which is coloured unless it is 0; "": none
	amount func(h history) float64 // 0: all is well
	total  value                   // since the process started; nil: this is a state, not a count
}

// checks are all the things that the page looks for. The limits are the same as in docs/alerts.yml,
// where that has them.
var checks = []check{
	lasts("Full listeners", "listeners whose clients wait for one of MaxConns places", fullListeners),
	grows("Full listeners", "idle connections closed to make room at MaxConns", 300, func(r *reading) float64 { return float64(r.Accept.MadeRoom) }),
	lasts("Lack of descriptors", "descriptors open, more than nine tenths of the limit", scarceFiles),
	grows("Lack of descriptors", "times that Accept waited for descriptors or memory", 0, func(r *reading) float64 { return float64(r.Accept.Backoffs) }),
	grows("Refused connections", "connections refused by OnAccept, for their address or for a bad PROXY header", 60,
		func(r *reading) float64 { return float64(r.Accept.Refused + r.Accept.BadHeaders) }),
	ofMetric("admission refused_requests_total", "Refused requests", "requests for which LimitWork had no place", 0),

	{title: "Busy loops", says: "percent of its time the busiest loop spends in callbacks", amount: busiestLoop},
	grows("Busy loops", "times that callbacks held a loop up for 10 ms or more", 6, func(r *reading) float64 { return float64(r.Loops.SlowPasses) }),
	ofMetric("reactor slow_callbacks_total", "Busy loops", "callbacks of reactor that took 10 ms or more", 6),

	lasts("Slow clients", "HTTP/1 answers whose client has read nothing for a second", most("http slow_answers", "http connections serving")),
	lasts("Slow clients", "HTTP/2 streams that wait for their client", most("http2 stalled_streams", "http2 open_streams")),
	lasts("Slow clients", "connections of reactor whose peer does not read", most("reactor blocked_connections", "reactor connections")),
	ofMetric("reactor refused_writes_total", "Slow clients", "writes refused at WriteHardLimit", 0),
	lasts("Slow upstreams", "calls that wait for a connection to a server", of("client waiting_calls")),
	{title: "Slow upstreams", says: "calls that wait for their answer, a second or longer on average", amount: slowUpstreams},

	grows("Leaked buffers", "buffers that were never released", 0, func(r *reading) float64 { return float64(r.Pool.Leaked) }),
	ofMetric("http foreign_connections_total", "Connections that net/http serves", "connections that are no *percore.Conn", 0),
	ofMetric("http tls_unsafe", "Connections that net/http serves", "process whose TLS net/http serves", 0),
	ofMetric("http2 attacks_total", "Clients that exceed limits", "connections ended because the client exceeded a limit of HTTP/2", 60),
	lasts("Certificates", "certificates that end within a week", endingCertificates),
	ofMetric("tls reloads_total failed", "Certificates", "changed certificates or ticket keys that can't be used", 0),
	ofMetric("handover given_total failed", "Failed restarts", "handovers to a successor that have failed", 0),
	ofMetric("handover taken_total failed", "Failed restarts", "handovers from a predecessor that have failed", 0),
	ofMetric("handover taken_total orphaned", "Failed restarts", "handovers whose predecessor has gone", 0),
	ofMetric("websocket lost_sessions_total", "WebSockets", "conversations that clients had to begin again", 0),
	ofMetric("websocket sessions kept", "WebSockets", "conversations that keep their goroutine while they wait", 0),
}

// lasts is a check for a state that is wrong if it isn't 0 for some seconds.
func lasts(title, says string, state value) check {
	return check{title: title, says: says, amount: func(h history) float64 { return h.least(state) }}
}

// grows is a check for a count that is wrong if it has grown by more than limit in the last minute.
func grows(title, says string, limit float64, total value) check {
	return check{title: title, says: says, total: total, amount: func(h history) float64 {
		if grown := total(h.now()) - total(&h[0]); grown > limit {
			return grown
		}
		return 0
	}}
}

// ofMetric is a check for a metric of an adapter, which is coloured in its table, too.
func ofMetric(metric, title, says string, limit float64) check {
	c := lasts(title, says, of(metric))
	if strings.Contains(metric, "_total") {
		c = grows(title, says, limit, of(metric))
	}
	c.metric = metric
	return c
}

// of is the value of an adapter's metric, by adapter, name and perhaps the label's value; without a
// label's value it is the sum over all of them.
func of(metric string) value {
	names := strings.Fields(metric)
	return func(r *reading) (sum float64) {
		for _, a := range r.Adapters {
			for _, f := range a.Metrics {
				if a.Adapter == names[0] && f.Name == names[1] && (len(names) == 2 || f.Of == names[2]) {
					sum += f.Value
				}
			}
		}
		return sum
	}
}

// most is the value of a metric if it is more than 100, or 10 and more than half of the whole; else 0.
// A few clients are always slow.
func most(metric, whole string) value {
	part, all := of(metric), of(whole)
	return func(r *reading) float64 {
		if n := part(r); n > 100 || n >= 10 && 2*n > all(r) {
			return n
		}
		return 0
	}
}

func fullListeners(r *reading) (n float64) {
	for _, l := range r.Listeners {
		if l.Full {
			n++
		}
	}
	return n
}

func scarceFiles(r *reading) float64 {
	if r.FilesMax > 0 && r.Files > r.FilesMax/10*9 {
		return float64(r.Files)
	}
	return 0
}

func endingCertificates(r *reading) float64 {
	end := of("tls certificate_not_after_timestamp_seconds")(r)
	if end > 0 && end < float64(r.At.Add(7*24*time.Hour).Unix()) {
		return 1
	}
	return 0
}

// busiestLoop returns the percentage for a loop that spends half of its time in callbacks, or 0. It
// needs some seconds to tell.
func busiestLoop(h history) (most float64) {
	if h.seconds() < steadyTime.Seconds() {
		return 0
	}
	type name struct {
		group string
		loop  int
	}
	before := make(map[name]time.Duration)
	for _, g := range h[0].Loops.Groups {
		for _, l := range g.PerLoop {
			before[name{g.Group, l.Loop}] = l.CallbackTime
		}
	}
	for _, g := range h.now().Loops.Groups {
		for _, l := range g.PerLoop {
			if t, ok := before[name{g.Group, l.Loop}]; ok {
				most = max(most, (l.CallbackTime-t).Seconds()/h.seconds()*100)
			}
		}
	}
	if most < 50 {
		return 0
	}
	return math.Round(most)
}

// slowUpstreams returns how many calls of httpadapter's client wait for an answer, if servers take a
// second or longer on average. The number of waiting calls, divided by the number that begin in a
// second, is how many seconds each waits. It needs some seconds to tell, and several calls.
func slowUpstreams(h history) float64 {
	unanswered, requests := of("client unanswered_calls"), of("client requests_total")
	calls := h.least(unanswered)
	begun := (requests(h.now()) - requests(&h[0])) / h.seconds()
	if h.seconds() < steadyTime.Seconds() || calls < 10 || calls < begun {
		return 0
	}
	return calls
}

// manual is where the paragraphs are.
const manual = "https://github.com/percore/percore/blob/main/docs/OPERATIONS.md"

// Link returns the address of the check's paragraph. The template calls it.
func (f finding) Link() string { return manual + "#" + anchor(f.Title) }

// anchor returns what GitHub makes of a heading.
func anchor(title string) string {
	return strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(title), "/", ""), " ", "-")
}

// finding is what a check says, or another number, which has no Title.
type finding struct {
	Title, Says string
	Amount      float64
	Counts      bool // the amount is the increase of the last minute, or since the start
}

// wrong returns what is wrong now.
func wrong(h history) (all []finding) {
	for _, c := range checks {
		if n := c.amount(h); n != 0 {
			all = append(all, finding{c.title, c.says, n, c.total != nil})
		}
	}
	return all
}

// earlier returns what has been wrong since the process started, where that is counted.
func earlier(now *reading) (all []finding) {
	for _, c := range checks {
		if c.total == nil {
			continue
		}
		if n := c.total(now); n != 0 {
			all = append(all, finding{c.title, c.says, n, true})
		}
	}
	return all
}

// facts are the numbers that people look for first.
func facts(r *reading) []finding {
	sum := func(metrics ...string) (sum float64) {
		for _, m := range metrics {
			sum += of(m)(r)
		}
		return sum
	}
	return []finding{
		{Says: "connections open", Amount: float64(r.Conns)},
		{Says: "connections waiting",
			Amount: sum("http connections waiting", "http connections parked", "http2 connections idle", "websocket sessions waiting")},
		{Says: "requests being served", Amount: sum("http connections serving", "http2 open_streams")},
		{Says: "answers that wait for slow clients", Amount: sum("http slow_answers", "http2 stalled_streams")},
		{Says: "requests since the start", Amount: sum("http http1_requests_total", "http2 streams_total")},
	}
}

// Report returns the text above the page's charts, for a log or a terminal: what the process does, and
// what has been wrong since it started. Each has a line, with a tab before the number.
func Report(s percore.Stats) string {
	r := reading{At: time.Now(), Stats: s}
	var text strings.Builder
	for _, f := range append(facts(&r), earlier(&r)...) {
		fmt.Fprintf(&text, "%s\t%s\n", f.Says, strconv.FormatFloat(f.Amount, 'f', -1, 64))
	}
	return text.String()
}
