package httpstream_test

import (
	"slices"
	"strconv"
	"strings"

	"github.com/percore/percore/internal/testnet/frames"
)

// The differences that a play may have, beside those that the scripts don't cause, and those that a
// record leaves out (how credit is announced, how often SETTINGS are acknowledged, whether the
// connection ends with a FIN or a reset):
//
//	rule         what is not compared                         reason
//	end          the frames of a step that ended the          answers that were under way may come or not
//	             connection, and handlers, if the step was a
//	             burst; all that comes later
//	impatience   handlers of a connection that ended with an  net/http takes a second to close it, and
//	             error, unless the scenario is patient        the fuzzer would wait most of the time
//	reset        what a handler reads after the client has    this server drops what was not read
//	             reset its stream; the frames of the stream
//	             from a burst with a reset on
//	early reset  the handler of a stream that was reset in    this server doesn't call it
//	             the burst that opened it
//	behind       everything from the step on in which a       this server ignores them, net/http resets
//	             client sends DATA or HEADERS on a stream     once more, or ends the connection
//	             that the server has reset
//	malformed    everything from the step on in which a       net/http has not opened the stream
//	             client goes on with a stream whose request
//	             was malformed
//	trailers     everything from the step on in which a       this server looks at them when the handler
//	             client sends trailers that are forbidden     reads them
//	refused      the end of a stream behind status 400 for a  this server resets it
//	             connection-specific field
//	lost end     the frames of a stream behind the end of a   net/http doesn't see the end
//	             body that the handler has closed
//	late reset   a reset behind a complete answer             this server's comes a tenth of a second later
//	again        what a server sends on a stream that it has  RST_STREAM is enough
//	             reset; a reset behind the client's
//	late         the frames of a step in which a write        net/http sends a reset, which overtakes the
//	             deadline passes behind the answer's end      answer
//	overtaken    what comes before a reset by the handler or  net/http sends a reset first
//	             a deadline, in the same step
//	empty        whether the header or empty DATA has         it means the same
//	             END_STREAM
//	cause        which rule a client has broken, in errors    each has its own words
//	flush        the error of a Flush of an answer to HEAD    net/http has one if it is slow to return
//	sizes        everything from the step on in which a       net/http takes it while the table is empty
//	             header block changes the table's size
//	             behind a field
//	silent       GOAWAY with an error, in the place of the    net/http can't tell a payload that is too
//	             end alone                                    short from a client that has gone
//	farewell     everything after a graceful GOAWAY           this server sends two, and serves what comes
//	                                                          between them
//	shared       everything from the step on in which         which stream gets how much of it is not
//	             several streams have used up the             specified
//	             connection's window
//	last stream  the last stream of a GOAWAY with an error    net/http counts the frame that was wrong
//	credit       everything from the step on in which one     they announce credit in other portions
//	             server, but not the other, sees more DATA
//	             than its window allows
//
// A scope is what remains to be compared.
type scope struct {
	last     int          // step
	handlers map[int]bool // that are not compared
	cut      bool         // something is not compared
	streams  map[int]int  // from which step on their frames are not compared
	ended    int          // the step in which the connection ended; of a burst
}

// frames reports whether the frames at a place are compared.
func (s *scope) frames(at place) bool {
	from, ok := s.streams[at.stream]
	return at.step <= s.last && (!ok || at.step < from) && (at.step != s.ended || at.stream == 0)
}

// handler reports whether a handler is compared.
func (s *scope) handler(key string) bool {
	n, _ := strconv.Atoi(strings.TrimRight(key, "'"))
	return !s.handlers[n] && !s.cut
}

func (s *scope) all() bool { return !s.cut && len(s.handlers) == 0 }

// stop leaves out everything from a step on.
func (s *scope) stop(step int) {
	s.last, s.cut = min(s.last, step-1), true
}

// allow applies the rules to what two servers have shown.
func (sc *scenario) allow(a, b *record) scope {
	s := scope{last: len(sc.steps), handlers: make(map[int]bool), streams: make(map[int]int), ended: -1}
	for _, r := range []*record{a, b} {
		sc.allowEnd(&s, r)
		sc.allowBehind(&s, r)
		sc.allowShared(&s, r)
	}
	if !a.whole || !b.whole {
		s.cut = true
	}
	allowSizes(&s, a, b)
	sc.allowReset(&s)
	sc.allowForbidden(&s)
	sc.allowLostEnd(&s)
	sc.allowSilent(a, b)
	sc.allowLate(a, b)
	sc.allowAgain(a)
	sc.allowAgain(b)
	sc.allowCredit(&s, a, b)
	return s
}

// burst returns how many frames a step has.
func (sc *scenario) burst(step int) (n int) {
	for _, f := range sc.allSent {
		if f.step == step {
			n++
		}
	}
	return n
}

// allowEnd is for the rules "end" and "farewell".
func (sc *scenario) allowEnd(s *scope, r *record) {
	for at, lines := range r.frames {
		for _, l := range lines {
			switch {
			case strings.HasPrefix(l, "goaway") && strings.HasSuffix(l, "NO_ERROR"):
				s.last, s.cut = min(s.last, at.step-1), true
			case strings.HasPrefix(l, "goaway"), l == "end":
				s.last = min(s.last, at.step)
				if sc.burst(at.step) > 1 {
					s.ended, s.cut = at.step, true
					r.frames[at] = []string{l}
				}
			}
		}
	}
}

// allowReset is for the rules "reset" and "early reset".
func (sc *scenario) allowReset(s *scope) {
	for _, f := range sc.allSent {
		if f.typ != frames.RSTStream || sc.burst(f.step) == 1 {
			continue
		}
		if from, ok := s.streams[f.stream]; !ok || f.step < from {
			s.streams[f.stream] = f.step
		}
		for i, o := range sc.opened {
			if o.stream == f.stream && o.step == f.step {
				s.handlers[i] = true
			}
		}
	}
}

// allowBehind is for the rules "behind" and "malformed", and for "early reset" by the server.
func (sc *scenario) allowBehind(s *scope, r *record) {
	for at, lines := range r.frames {
		for _, l := range lines {
			if !strings.HasPrefix(l, "reset ") {
				continue
			}
			first := slices.IndexFunc(sc.allSent, func(f sent) bool { return f.stream == at.stream && f.typ == frames.Headers })
			malformed := first < 0 || !sc.allSent[first].opens
			same := 0
			for i, o := range sc.opened {
				if o.stream == at.stream && o.step == at.step {
					s.handlers[i] = true
					same-- // it comes before
				}
			}
			if h := sc.steps[at.step].release; h >= 0 && sc.opened[h].stream == at.stream {
				same++ // the handler may return before or behind a frame of the client's
			}
			for _, f := range sc.allSent {
				switch {
				case f.step == at.step && (f.stream == at.stream || f.stream == 0): // a window lets handlers return, too
					same++
				case f.stream != at.stream || f.step <= at.step:
				case f.typ == frames.Data || f.typ == frames.Headers || f.typ == 9 || malformed:
					s.stop(f.step)
				}
			}
			if sc.framesOf(at) > 2 {
				s.streams[at.stream] = at.step
			}
			if same > 1 || malformed && sc.framesOf(at) > 1 {
				s.stop(at.step)
			}
		}
	}
}

// framesOf returns how many frames a step has for a stream. A request with a body has two.
func (sc *scenario) framesOf(at place) (n int) {
	for _, f := range sc.allSent {
		if f.step == at.step && f.stream == at.stream {
			if n++; f.typ != frames.Data && f.typ != frames.Headers && f.typ != 9 {
				n++
			}
		}
	}
	return n
}

// allowSizes is for the rule "sizes".
func allowSizes(s *scope, a, b *record) {
	const bad = "goaway COMPRESSION_ERROR"
	for at, lines := range b.frames {
		if slices.Contains(lines, bad) && !slices.Contains(a.frames[at], bad) {
			s.stop(at.step)
		}
	}
}

// allowForbidden is for the rule "trailers".
func (sc *scenario) allowForbidden(s *scope) {
	for _, f := range sc.allSent {
		if f.forbidden {
			s.stop(f.step)
		}
	}
}

// allowLostEnd is for the rule "lost end".
func (sc *scenario) allowLostEnd(s *scope) {
	for _, f := range sc.allSent {
		if from, lost := s.streams[f.stream]; lost && f.step > from && f.typ != frames.WindowUpdate {
			s.stop(f.step)
		}
		closes := slices.ContainsFunc(sc.opened, func(o opening) bool { return o.stream == f.stream && closesBody(o.program) })
		if _, lost := s.streams[f.stream]; !lost && closes && f.typ == frames.Data && f.flags&frames.End != 0 && f.length > 0 {
			s.streams[f.stream] = f.step
		}
	}
}

// allowAgain is for the rule "again".
func (sc *scenario) allowAgain(r *record) {
	reset := make(map[int]bool)
	for step := range sc.steps {
		for _, f := range sc.allSent {
			if at := (place{step, f.stream}); f.step == step && f.typ == frames.RSTStream || reset[f.stream] {
				reset[f.stream] = true
				if r.frames[at] = slices.DeleteFunc(r.frames[at], isReset); len(r.frames[at]) == 0 {
					delete(r.frames, at)
				}
			}
		}
		for _, o := range sc.opened {
			at := place{step, o.stream}
			if i := slices.IndexFunc(r.frames[at], isReset); i >= 0 {
				r.frames[at], reset[o.stream] = r.frames[at][:i+1], true
			}
		}
	}
}

// allowLate is for the rule "late".
func (sc *scenario) allowLate(a, b *record) {
	for at, lines := range a.frames {
		last := len(lines) - 1
		if last < 0 || !isReset(lines[last]) || !strings.HasSuffix(lines[last], "INTERNAL_ERROR") ||
			slices.ContainsFunc(b.frames[at], isReset) || !b.hasEnded(at) || !sc.passesDeadline(at.stream) {
			continue
		}
		delete(a.frames, at)
		delete(b.frames, at)
	}
}

// passesDeadline reports whether the handler of a stream sets a write deadline that has passed.
func (sc *scenario) passesDeadline(stream int) bool {
	for _, o := range sc.opened {
		for code := o.program; o.stream == stream && len(code) > 0; {
			a, arg := actions[code.Next()%len(actions)], code.Next()
			if a.name == "set a deadline" && arg%2 == 1 && arg/2%3 == 1 {
				return true
			}
		}
	}
	return false
}

// hasEnded reports whether a stream's answer was complete in a step.
func (r *record) hasEnded(at place) bool {
	for ; at.step >= 0; at.step-- {
		if slices.ContainsFunc(r.frames[at], func(l string) bool { return strings.HasSuffix(l, " end") }) {
			return true
		}
	}
	return false
}

// isReset reports whether a frame is a reset that is compared: see the rule "late reset".
func isReset(line string) bool {
	return strings.HasPrefix(line, "reset ") && !strings.HasSuffix(line, " NO_ERROR")
}

// allowSilent is for the rule "silent".
func (sc *scenario) allowSilent(a, b *record) {
	for at, lines := range a.frames {
		if slices.Contains(lines, "end") && len(b.frames[at]) > 0 {
			last := &b.frames[at][len(b.frames[at])-1]
			if strings.HasPrefix(*last, "goaway ") {
				*last = "end"
			}
		}
	}
}

// allowShared is for the rule "shared".
func (sc *scenario) allowShared(s *scope, r *record) {
	const window = 65535
	for step := range sc.steps {
		streams, sum := 0, 0
		for id := range 2 * len(sc.opened) {
			n := r.dataUntil(step, id)
			if sum += n; n > 0 {
				streams++
			}
		}
		if sc.narrow && sum >= window && streams > 1 {
			s.stop(step)
			return
		}
	}
}

// dataUntil returns how many bytes of DATA a stream got, up to a step.
func (r *record) dataUntil(step, stream int) (n int) {
	for i := range step + 1 {
		for _, l := range r.frames[place{i, stream}] {
			if rest, ok := strings.CutPrefix(l, "data "); ok {
				_, quoted, _ := strings.Cut(rest, " ")
				text, _ := strconv.QuotedPrefix(quoted)
				text, _ = strconv.Unquote(text)
				n += len(text)
			}
		}
	}
	return n
}

// allowCredit is for the rule "credit".
func (sc *scenario) allowCredit(s *scope, a, b *record) {
	over := func(r *record, at place) bool {
		for _, l := range r.frames[at] {
			if strings.HasPrefix(l, "reset ") && strings.HasSuffix(l, "FLOW_CONTROL_ERROR") {
				return true
			}
		}
		return false
	}
	for step := range sc.steps {
		for _, o := range sc.opened {
			at := place{step, o.stream}
			if over(a, at) != over(b, at) {
				s.stop(step)
			}
		}
	}
}

// The scripts that the fuzzer begins with.
var seeds = []string{
	"\x00\x08\x00\x26\x00\x00", // WINDOW_UPDATE of nothing behind the answer to a part of a request
	"\x00\x00\x04\x01\x00\x05\x04",
	"\x00\x08\x06\x01\x00\x05\x03\x01\x00\x16\x00\x05\x01",
	"\x01\x08\x04\x00\x04\x05\x02\x16\x00\x06\x00\x16\x00\x08\x01",
	"\x02\x12\x04\x01\x00\x05\x02\x7f\x01\x02\x03\x04\x02\x05\x11",
	"\x03\xc8\x06\x01\x00\x08\x00\x05\x03\xd6\x00\x03\x01\xe3\x00\x00\x40\x00",
	"\x04\x00\x04\x05\x0f\x08\x00\x26\x00\x05\x2a\x04\x01\x38\x00",
	"\x80\x0e\x06\x04\x01\x00\x0d\x03\x16\x00\x03\x00\x20\x00\x02\x0d\x0e",
	"\x05\x33\x04\x03\x0c\x05\x01\x05\x03\x35\x0a\x00\x04\x0b\x01",
}
