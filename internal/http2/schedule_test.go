package http2

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// priorities returns a configuration that serves them.
func priorities() *Config {
	cfg := DefaultConfig()
	cfg.Priorities = ServePriorities
	cfg.Streams = 1000
	cfg.Idle = Budget{1 << 20, 0}
	return cfg
}

// update sends PRIORITY_UPDATE.
func (p *peer) update(id uint32, priority string) *peer {
	return p.frame(typePriorityUpdate, 0, 0, append(u32(id), priority...))
}

// queue makes streams senders of so many frames.
func (p *peer) queue(frames int, ids ...uint32) {
	for _, id := range ids {
		p.c.Queue(p.streams[id], make([]byte, frames*maxFrameBytes), true)
	}
}

// pump pumps once, and returns the streams of the frames that were made: "1 1 3".
func (p *peer) pump(frames int) string {
	p.t.Helper()
	for p.c.Pump(frames*maxFrameBytes) != nil {
	}
	checkSchedule(p.t, p.c)
	var ids []string
	for out := p.c.TakeOutput(); len(out) > 0; {
		h := parseHeader(out)
		out = out[headerBytes+h.length:]
		if h.typ == typeData {
			ids = append(ids, fmt.Sprint(h.id))
		}
	}
	return strings.Join(ids, " ")
}

// drain pumps until nothing is left, a frame at a time, as on a slow connection.
func (p *peer) drain() string {
	var all []string
	for {
		ids := p.pump(1)
		if ids == "" {
			return strings.Join(all, " ")
		}
		all = append(all, ids)
	}
}

// checkSchedule checks that each sender is in its place, and in the order of its place.
func checkSchedule(t testing.TB, c *Conn) {
	t.Helper()
	q := c.schedule
	if q == nil {
		return
	}
	n := len(q.blocked)
	for i, at := range q.blocked {
		if at.place != blocked || int(at.at) != i || i > 0 && q.blocked.Less(i, (i-1)/2) {
			t.Fatalf("stream %d is at %d of those that are blocked, it says %+v", at.stream.id, i, at)
		}
	}
	count := func(first *sender, want place, class priority) {
		for at := first; at != nil; {
			if n++; at.place != want || want == queued && at.stream.priority != class || at.next.last != at || at.stream.sender != at {
				t.Fatalf("stream %d of priority %d is in the ring of %d, it says %+v", at.stream.id, at.stream.priority, class, at)
			}
			if at = at.next; at == first {
				break
			}
		}
	}
	count(q.free, free, 0)
	for class := range priority(16) {
		if filled := q.filled&(1<<class) != 0; !filled && class != plainPriority && q.others == nil {
			continue
		} else if r := q.ring(class); filled != (r.first != nil) {
			t.Fatalf("class %d: got %v, and senders %t", class, filled, r.first != nil)
		} else {
			count(r.first, queued, class)
		}
	}
	if n != c.Senders() {
		t.Fatalf("got %d senders, want %d", c.Senders(), n)
	}
}

// TestOrder: the order of DATA frames of answers that all wait.
func TestOrder(t *testing.T) {
	const proxied = "via"
	for _, test := range []struct {
		name     string
		requests []string // the priorities of streams 1, 3, 5; "" for none
		updates  func(p *peer)
		want     string // of three frames each
	}{
		{"no priorities", []string{"", "", ""}, nil, "1 3 5 1 3 5 1 3 5"},
		{"urgency", []string{"u=5", "u=0", "u=3"}, nil, "3 3 3 5 5 5 1 1 1"},
		{"urgency, incremental", []string{"u=5, i", "u=0, i", "u=3, i"}, nil, "3 3 3 5 5 5 1 1 1"},
		{"one after the other", []string{"u=3", "u=3", "u=3"}, nil, "1 1 1 3 3 3 5 5 5"},
		{"incremental", []string{"i", "i", "i"}, nil, "1 3 5 1 3 5 1 3 5"},
		{"both kinds of an urgency", []string{"u=1", "u=1", "u=1, i"}, nil, "1 5 1 5 1 5 3 3 3"},
		{"by default, of a client that knows priorities", []string{"u=3", "", "i=?0"}, nil, "1 1 1 3 3 3 5 5 5"},
		{"before a client has shown it", []string{"", "", "u=3"}, nil, "5 1 5 3 5 1 3 1 3"},
		{"least", []string{"u=7", "u=6", "u=7"}, nil, "3 3 3 1 1 1 5 5 5"},
		{"values that are none", []string{"u=8", "u=-1", "u=a"}, nil, "1 1 1 3 3 3 5 5 5"},
		{"no dictionary", []string{"(", "u=0", "u"}, nil, "3 3 3 1 1 1 5 5 5"},
		{"the last of several", []string{"u=0, u=6", "u=5", "i, i=?0"}, nil, "5 5 5 3 3 3 1 1 1"},
		{"forwarded", []string{"u=7," + proxied, "u=0", "u=1"}, nil, "3 5 3 5 3 5 1 1 1"},
		{"an update", []string{"u=3", "u=3", "u=3"}, func(p *peer) { p.update(5, "u=1") }, "5 5 5 1 1 1 3 3 3"},
		{"an update to incremental", []string{"", "", ""}, func(p *peer) { p.update(1, "u=2, i").update(3, "u=2,i").update(5, "u=2") }, "5 1 5 3 5 1 3 1 3"},
		{"the last update", []string{"u=3", "u=3", "u=3"}, func(p *peer) { p.update(5, "u=1").update(1, "u=0").update(1, "u=6") }, "5 5 5 3 3 3 1 1 1"},
		{"an update that says nothing", []string{"u=0", "u=2", "u=7"}, func(p *peer) { p.update(7, "").update(1, "") }, "3 3 3 1 1 1 5 5 5"},
	} {
		for _, when := range []string{"early", "open", "waiting"} {
			if test.updates == nil && when != "open" {
				continue
			}
			t.Run(test.name+", "+when, func(t *testing.T) {
				p := newPeer(t, priorities())
				p.settings(settingInitialWindow, 1<<20).windowUpdate(0, 1<<20)
				update := func(at string) {
					if test.updates != nil && at == when {
						test.updates(p)
					}
				}
				update("early")
				for i, priority := range test.requests {
					var fields []string
					if priority, via := strings.CutSuffix(priority, ","+proxied); priority != "" {
						if fields = []string{"priority", priority}; via {
							fields = append(fields, "via", "2 proxy")
						}
					}
					p.get(uint32(2*i+1), fields...)
				}
				update("open")
				p.feed()
				p.queue(3, 1, 3, 5)
				update("waiting")
				p.feed()
				if got := p.drain(); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
				if p.err != nil || p.c.Senders() != 0 || p.c.Ready() {
					t.Errorf("got %v, %d senders", p.err, p.c.Senders())
				}
			})
		}
	}
}

// TestShrinkingWindow: a client that closes the windows of many senders, and opens them again, makes
// the server move them for nothing: it can't go on with that.
func TestShrinkingWindow(t *testing.T) {
	for senders, most := range map[uint32]int{0: 250, 100: 239, 5000: 52} {
		cfg := DefaultConfig()
		cfg.Streams = 10000
		cfg.Idle.PerSecond = 0
		p := newPeer(t, cfg)
		p.settings(settingInitialWindow, 1)
		for i := range senders {
			p.get(2*i + 1).feed()
			p.c.Queue(p.streams[2*i+1], make([]byte, 100), true)
		}
		p.log = nil
		p.c.budgets.idle = cfg.Idle.start()
		n := 0
		for p.err == nil && n < 10000 {
			p.settings(settingInitialWindow, 0, settingInitialWindow, 1).settings(settingInitialWindow, 1).feed()
			n++
		}
		if n > most || n < most*9/10 {
			t.Errorf("%d senders: got %d SETTINGS that make the windows smaller, want %d", senders, n, most)
		}
	}
}

// TestEarlyUpdates: the priorities of streams that are not open are kept, for the last eight; those of
// streams that have ended, or never open, are not.
func TestEarlyUpdates(t *testing.T) {
	p := newPeer(t, priorities())
	for id := uint32(1); id <= 41; id += 2 {
		p.update(id+1, "u=0").update(id, "u=7").update(id, "u=1")
	}
	p.get(3).get(25).get(27).get(41).update(9, "u=2").feed()
	for id, want := range map[uint32]priority{3: defaultPriority, 25: defaultPriority, 27: 1 << 1, 41: 1 << 1} {
		if got := p.streams[id].priority; got != want {
			t.Errorf("stream %d: got priority %d, want %d", id, got, want)
		}
	}
	p.c.Rest()
	if p.c.schedule == nil {
		t.Error("Rest has forgotten priorities")
	}
}

// TestScheduleModel plays random frames and calls, and compares what each step of Pump does with a
// schedule that is one list.
func TestScheduleModel(t *testing.T) {
	for range 200 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := &scheduleModel{peer: newPeer(t, priorities()), rnd: rand.New(rand.NewPCG(seed, 0)), begun: make(map[priority]uint32), last: 1}
			for range 600 {
				m.act()
				checkSchedule(t, m.c)
			}
		})
	}
}

// A scheduleModel has the senders in the order of their turns. It looks up windows and priorities in the
// connection.
type scheduleModel struct {
	*peer
	rnd    *rand.Rand
	list   []*modelSender
	begun  map[priority]uint32 // of each class that is not incremental
	pieces []priority
	swap   bool
	last   uint32 // the next stream
}

type modelSender struct {
	st    *Stream
	bytes int
	end   bool
	waits bool // for its own window
}

// act plays a frame or a call.
func (m *scheduleModel) act() {
	id := uint32(m.rnd.IntN(int(m.last)))/2*2 + 1
	st, s := m.streams[id], m.sender(id)
	priority := fmt.Sprintf("u=%d, i=?%d", m.rnd.IntN(4), m.rnd.IntN(2))
	switch m.rnd.IntN(12) {
	case 0:
		m.get(m.last, "priority", priority).feed()
		m.last += 2
	case 1, 2, 3:
		if st != nil && !st.WriteEnded() && s == nil {
			s = &modelSender{st: st, bytes: m.rnd.IntN(3) * m.rnd.IntN(60), end: m.rnd.IntN(3) == 0}
			m.c.Queue(st, make([]byte, s.bytes), s.end)
			s.waits = s.bytes > 0 && m.c.send.of(st) <= 0
			m.join(s)
		}
	case 4:
		if s != nil && m.rnd.IntN(3) == 0 {
			m.c.Unqueue(st)
			m.leave(s)
		}
	case 5:
		if st != nil && !st.Ended() {
			m.windowUpdate(id, uint32(1+m.rnd.IntN(80))).feed()
			if s != nil && s.waits && m.c.send.of(st) > 0 {
				m.wake(s)
			}
		}
	case 6:
		m.settings(settingInitialWindow, uint32(m.rnd.IntN(100))).feed()
	case 7:
		if st == nil {
			break
		}
		ended := st.Ended() // and so there is no such stream
		if m.update(id, priority).feed(); s != nil && !ended && !s.waits && s.bytes > 0 {
			m.leave(s)
			m.join(s)
			s.waits = m.c.send.of(st) <= 0 // SETTINGS have closed it
		}
	case 8:
		m.windowUpdate(0, uint32(m.rnd.IntN(300))+1).feed()
	case 9:
		m.readOutput()
		m.pieces = nil
	default:
		m.step()
	}
}

func (m *scheduleModel) sender(id uint32) *modelSender {
	for _, s := range m.list {
		if s.st.id == id {
			return s
		}
	}
	return nil
}

func (m *scheduleModel) leave(s *modelSender) {
	m.list = slices.DeleteFunc(m.list, func(o *modelSender) bool { return o == s })
}

func (m *scheduleModel) join(s *modelSender) {
	if p := s.st.priority; s.bytes > 0 && !p.incremental() && m.begun[p] == s.st.id {
		m.list = slices.Insert(m.list, 0, s)
	} else {
		m.list = append(m.list, s)
	}
}

func (m *scheduleModel) wake(s *modelSender) {
	s.waits = false
	m.leave(s)
	m.join(s)
}

// step compares what Pump does next.
func (m *scheduleModel) step() {
	m.readOutput()
	m.log = nil
	m.pieces = nil
	for range 1 + m.rnd.IntN(6) {
		frame, done := m.next()
		before := len(m.c.writer.out)
		st := m.c.Pump(before + 1)
		got := ""
		if out := m.c.writer.out[before:]; len(out) > 0 {
			h := parseHeader(out)
			got = m.frameText(&h, make([]byte, h.length))
			if len(out) != headerBytes+int(h.length) {
				m.t.Fatalf("got %d bytes, want a frame", len(out))
			}
		}
		if got != frame || st != done {
			m.t.Fatalf("got %q, done %v; want %q, %v", got, st, frame, done)
		}
	}
}

// next does a step, and returns the frame, and the stream that is no sender any more.
func (m *scheduleModel) next() (frame string, done *Stream) {
	var woken []*modelSender
	for _, s := range m.list {
		if s.waits && m.c.send.of(s.st) > 0 {
			woken = append(woken, s)
		}
	}
	slices.SortFunc(woken, func(a, b *modelSender) int { // the widest window first
		return cmp.Or(cmp.Compare(b.st.delta, a.st.delta), cmp.Compare(a.st.id, b.st.id))
	})
	for _, s := range woken {
		m.wake(s)
	}
	for {
		s := m.choose()
		if s == nil {
			return frame, nil
		}
		n := max(0, min(s.bytes, int(m.c.send.of(s.st)), int(m.c.send.conn)))
		if s.bytes > 0 && n == 0 { // SETTINGS have closed its window since
			s.waits = true
			continue
		}
		class := s.st.priority
		queued := s.bytes > 0
		s.bytes -= n
		if queued {
			m.swap = !m.swap
			if s.bytes == 0 && !s.end {
				m.pieces = append(m.pieces, class)
			}
			if m.leave(s); class.incremental() {
				m.list = append(m.list, s)
			} else {
				m.begun[class] = s.st.id
				m.list = slices.Insert(m.list, 0, s)
			}
		}
		if n > 0 || s.end {
			h := header{typ: typeData, id: s.st.id}
			if s.bytes == 0 && s.end {
				h.flags = flagEndStream
			}
			frame = m.frameText(&h, make([]byte, n))
		}
		if s.bytes == 0 {
			m.leave(s)
			return frame, s.st
		}
		s.waits = int(m.c.send.of(s.st)) <= n
		return frame, nil
	}
}

// choose returns the sender whose turn it is.
func (m *scheduleModel) choose() *modelSender {
	urgency, kinds := priority(16), 0
	for _, s := range m.list {
		if s.bytes == 0 {
			return s
		}
		if u := s.st.priority &^ 1; !s.waits && m.c.send.conn > 0 && u <= urgency {
			if u < urgency {
				urgency, kinds = u, 0
			}
			kinds |= 1 << (s.st.priority & 1)
		}
	}
	class := urgency
	if kinds == 2 || kinds == 3 && m.swap {
		class++
	}
	for _, p := range m.pieces {
		if p&^1 < urgency || p == class && !class.incremental() {
			return nil
		}
	}
	for _, s := range m.list {
		if s.st.priority == class && !s.waits {
			return s
		}
	}
	return nil
}
