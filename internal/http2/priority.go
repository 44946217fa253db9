package http2

import (
	"encoding/binary"
	"slices"
	"strconv"
)

// The priorities of RFC 9218: what a client wants to have first. net/http's server of Go 1.27 decides
// what counts:
//
//	a stream's priority is that of                    if
//	the last PRIORITY_UPDATE for it                   there was one, perhaps before the request
//	the field "priority" of the request               there is one, and no earlier request was forwarded
//	plainPriority: its answer takes turns             the client has sent no priority, or requests are forwarded
//	urgency 3, not incremental                        otherwise
//
// Forwarded requests may come from several clients, who know nothing of each other. The last eight
// updates for streams that are not open yet are kept; net/http keeps one.

// A priority is a class of streams: twice the urgency, plus one if it is incremental. Lower numbers come
// first.
type priority uint8

const (
	defaultUrgency = 3
	leastUrgent    = 7

	defaultPriority = priority(defaultUrgency << 1)
	plainPriority   = defaultPriority | incremental
	incremental     = 1
)

func (p priority) incremental() bool { return p&incremental != 0 }

// signals are what a client has said about priorities, and about itself.
type signals struct {
	aware     bool // it has sent a priority
	forwarded bool // it has forwarded a request of another client
}

// An earlyUpdate is the priority of a stream that is not open yet.
type earlyUpdate struct {
	id       uint32
	priority priority
}

const earlyMost = 8

// findEarly returns where the update for a stream is; -1: there is none.
func (q *schedule) findEarly(id uint32) int {
	return slices.IndexFunc(q.early, func(u earlyUpdate) bool { return u.id == id })
}

func (q *schedule) noteEarly(id uint32, p priority) {
	if at := q.findEarly(id); at >= 0 {
		q.early[at].priority = p
		return
	}
	if len(q.early) == earlyMost {
		q.early = slices.Delete(q.early, 0, 1)
	}
	q.early = append(q.early, earlyUpdate{id, p})
}

// takeEarly returns what noteEarly has noted, or p.
func (q *schedule) takeEarly(id uint32, p priority) priority {
	if q == nil || len(q.early) == 0 {
		return p
	}
	if at := q.findEarly(id); at >= 0 {
		p = q.early[at].priority
		q.early = slices.Delete(q.early, at, at+1)
	}
	return p
}

// Prioritizes reports whether the client has sent a priority that counts.
func (c *Conn) Prioritizes() bool { return c.signals.aware }

// byDefault returns the priority of a stream whose client says nothing about it.
func (s *signals) byDefault() priority {
	if s.aware && !s.forwarded {
		return defaultPriority
	}
	return plainPriority
}

// ofRequest returns the priority that the fields of a request ask for.
func (s *signals) ofRequest(w *wishes) priority {
	if s.forwarded {
		return plainPriority
	}
	s.aware = s.aware || w.asks
	s.forwarded = w.forwarded
	p, _ := parsePriority(w.priority, s.byDefault())
	return p
}

// priorityUpdate handles a PRIORITY_UPDATE frame. Its id is that of the stream in the payload.
func (c *Conn) priorityUpdate(f *Frame) verdict {
	if v := c.budgets.spendIdle(1); v.scope != fine {
		return v
	}
	if c.cfg.Priorities != ServePriorities {
		return verdict{}
	}
	c.signals.aware = true
	p, ok := parsePriority(string(f.payload[4:]), c.signals.byDefault())
	if !ok {
		return streamError(ProtocolError, "a priority is no dictionary")
	}
	s, st := c.streams.stateOf(f.id)
	switch {
	case st != nil:
		c.schedule.prioritize(st, p, &c.send)
	case s == idle && f.id&1 == 1:
		c.makeSchedule().noteEarly(f.id, p)
	}
	return verdict{}
}

// prioritize changes the priority of a stream. A stream that waits for its turn goes to the end of its
// new ring, even if that is the old one, as in net/http.
func (q *schedule) prioritize(st *Stream, p priority, windows *outflow) {
	at := st.sender
	if at == nil || at.place != queued {
		st.priority = p
		return
	}
	q.remove(at)
	st.priority = p
	q.put(at, windows)
}

// checkPriorityUpdate returns the rule that a PRIORITY_UPDATE breaks, if any (RFC 9218, section 7.1).
func (h *header) checkPriorityUpdate() verdict {
	switch {
	case h.id != 0:
		return connError(ProtocolError, "PRIORITY_UPDATE on a stream")
	case h.length < 4:
		return connError(FrameSizeError, "PRIORITY_UPDATE without a stream")
	}
	return verdict{}
}

func (f *Frame) beginPriorityUpdate() {
	if f.id = binary.BigEndian.Uint32(f.payload) & maxID; f.id == 0 {
		f.verdict = connError(ProtocolError, "PRIORITY_UPDATE of stream 0")
	}
}

// parsePriority returns the priority that a dictionary such as "u=1, i" asks for. byDefault counts for
// members that are missing or have values of other kinds, and for both if s is no dictionary.
func parsePriority(s string, byDefault priority) (p priority, ok bool) {
	p = byDefault
	ok = eachMember(s, func(key, value string) {
		switch key {
		case "u":
			if u, err := strconv.Atoi(value); err == nil && u >= 0 && u <= leastUrgent {
				p = priority(u)<<1 | p&incremental
			}
		case "i":
			switch value {
			case "?1":
				p |= incremental
			case "?0":
				p &^= incremental
			}
		}
	})
	if !ok {
		return byDefault, false
	}
	return p, true
}
