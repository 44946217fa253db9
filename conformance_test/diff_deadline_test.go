package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"
)

// soon is a deadline that passes while a test waits for it.
func soon() time.Time { return time.Now().Add(15 * time.Millisecond) }

// moveInTime plays scripts about deadlines that are moved before they pass. It tries longer and
// longer deadlines until the machine was quick enough. play gets the deadline and calls moved once
// it has moved it away. It continues only if moved returns true.
func (s *stage) moveInTime(play func(deadline time.Time, moved func() bool)) {
	s.Helper()
	s.retry("moving a deadline before it passes", func(try int) bool {
		deadline := time.Now().Add(30 * time.Millisecond << (2 * try))
		inTime := false
		play(deadline, func() bool {
			inTime = time.Now().Before(deadline)
			if inTime {
				time.Sleep(time.Until(deadline) + 5*time.Millisecond)
			}
			return inTime
		})
		return inTime
	})
}

// waitInTime plays scripts about deadlines that pass while an operation waits. It tries longer and
// longer deadlines until the operation began before the deadline. play sets a deadline that far
// away, and reports whether the operation had any result before it.
func (s *stage) waitInTime(play func(wait time.Duration) (begun bool)) {
	s.Helper()
	s.retry("beginning before a deadline passes", func(try int) bool {
		return play(15 * time.Millisecond << (2 * try))
	})
}

// later is a deadline that passes after every test has ended.
func later() time.Time { return time.Now().Add(time.Hour) }

const timedOut = `0 "" OpError\{"read".*os\.ErrDeadlineExceeded.*timeout=true`

func TestDiffReadDeadline(t *testing.T) {
	playScripts(t, onTwoKinds([]script{{
		name:  "in the past, set while several reads are blocked",
		shows: []string{`blocked srv.Read\(8\): ` + timedOut},
		play: func(s *stage) {
			srv, _ := s.pair()
			first, second, third := srv.beginRead(8), srv.beginRead(8), srv.beginRead(8)
			first.stillBlocked()
			srv.deadline("SetDeadline", longAgo)
			first.end()
			second.end()
			third.end()
		},
	}, {
		name:  "in the near future, without a monotonic reading",
		shows: []string{timedOut},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.deadline("SetReadDeadline", soon().Round(0))
			srv.read(8)
			srv.deadline("SetReadDeadline", time.Now().Round(0).Add(-time.Second))
			srv.read(8)
		},
	}, {
		name:  "now, to the nanosecond",
		shows: []string{timedOut},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.deadline("SetReadDeadline", time.Now())
			srv.read(8)
			srv.deadline("SetReadDeadline", time.Now().Add(time.Nanosecond))
			srv.read(8)
		},
	}, {
		name:  "moved later while blocked",
		shows: []string{`blocked srv.Read\(8\): 4 "data" nil`},
		play: func(s *stage) {
			s.moveInTime(func(deadline time.Time, moved func() bool) {
				srv, cli := s.pair()
				srv.deadline("SetReadDeadline", deadline)
				blocked := srv.beginRead(8)
				srv.deadline("SetReadDeadline", later())
				if moved() {
					blocked.stillBlocked()
					cli.write("data")
					blocked.end()
				}
			})
		},
	}, {
		name:  "cleared while blocked",
		shows: []string{`blocked srv.Read\(8\): 4 "data" nil`},
		play: func(s *stage) {
			s.moveInTime(func(deadline time.Time, moved func() bool) {
				srv, cli := s.pair()
				srv.deadline("SetReadDeadline", deadline)
				blocked := srv.beginRead(8)
				srv.deadline("SetReadDeadline", time.Time{})
				if moved() {
					blocked.stillBlocked()
					cli.write("data")
					blocked.end()
				}
			})
		},
	}, {
		name:  "moved back and forth",
		shows: []string{`Read\(8\): 1 "x" nil`, timedOut},
		play: func(s *stage) {
			srv, cli := s.pair()
			for range 20 {
				srv.Conn.SetReadDeadline(later())
				srv.Conn.SetReadDeadline(soon())
				srv.Conn.SetReadDeadline(longAgo)
				srv.Conn.SetReadDeadline(later())
				cli.write("x")
				srv.read(8)
			}
			srv.deadline("SetReadDeadline", soon())
			srv.read(8)
		},
	}, {
		name:  "further away than any clock",
		shows: []string{`blocked srv.Read\(8\): 4 "data" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			for _, far := range []time.Time{
				time.Now().Add(1<<63 - 1),
				time.Unix(1<<40, 0),
				time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
				time.Now().AddDate(300, 0, 0),
			} {
				srv.deadline("SetReadDeadline", far)
				blocked := srv.beginRead(8)
				blocked.stillBlocked()
				cli.write("data")
				blocked.end()
			}
		},
	}, {
		name:  "further in the past than any clock",
		shows: []string{timedOut},
		play: func(s *stage) {
			srv, _ := s.pair()
			for _, past := range []time.Time{
				time.Unix(0, 0),
				time.Unix(-1<<40, 0),
				time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC),
				time.Now().AddDate(-300, 0, 0),
			} {
				srv.deadline("SetReadDeadline", past)
				srv.read(8)
			}
		},
	}, {
		name:  "of a connection closed while it runs",
		shows: []string{`blocked srv.Read\(8\): 0 "" OpError\{"read".*net\.ErrClosed`},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.deadline("SetDeadline", soon())
			blocked := s.begin("srv.Close", func() string { return "srv.Close: " + describeError(srv.Conn.Close()) })
			blocked.end()
			time.Sleep(20 * time.Millisecond) // past the deadline
			blocked = srv.beginRead(8)
			blocked.end()
			srv.deadline("SetDeadline", soon())
		},
	}}))
}

func TestDiffWriteDeadline(t *testing.T) {
	const timedOut = `0 OpError\{"write".*os\.ErrDeadlineExceeded.*timeout=true`
	playScripts(t, onTwoKinds([]script{{
		name:  "in the past, set while a write is blocked",
		shows: []string{`some: true OpError\{"write".*os\.ErrDeadlineExceeded`, `Write\("behind"\): ` + timedOut},
		play: func(s *stage) {
			srv, cli := s.pair()
			first := srv.beginCutWrite(cli)
			second := srv.beginWrite([]byte("behind"))
			first.stillBlocked()
			srv.deadline("SetWriteDeadline", longAgo)
			first.end()
			second.end()
		},
	}, {
		name:  "cuts a write, whose count is what the peer receives",
		shows: []string{`all, some: false true`, `received as counted: true`, `the right bytes: true`, `early: false`},
		play: func(s *stage) {
			s.waitInTime(func(wait time.Duration) bool {
				srv, cli := s.pair()
				deadline := time.Now().Add(wait)
				srv.deadline("SetWriteDeadline", deadline)
				n, err := srv.Conn.Write(pattern(muchData))
				s.note("early: %t", time.Now().Before(deadline))
				s.note("all, some: %t %t", n == muchData, n > 0)
				s.noteError("write", err)
				srv.close()
				received, err := io.ReadAll(cli.Conn)
				s.noteError("reading", err)
				s.note("received as counted: %t", len(received) == n)
				s.note("the right bytes: %t", bytes.Equal(received, pattern(len(received))))
				return n > 0
			})
		},
	}, {
		name:  "cuts writes again and again, and the stream goes on where they stopped",
		shows: []string{`cut at least once: true`, `the right bytes: true`, `only timeouts: true`},
		play: func(s *stage) {
			srv, cli := s.pair()
			const cutsAwaited = 3
			cut := make(chan bool, cutsAwaited)
			received := s.begin("reading", func() string {
				// Read a piece for each of the first cuts, so that writes block; then read to the end.
				size, right := 0, true
				buf := make([]byte, 64<<10)
				for i := 0; ; i++ {
					if i < cutsAwaited {
						<-cut
					}
					n, err := cli.Conn.Read(buf)
					size += n
					right = right && size <= muchData && bytes.Equal(buf[:n], pattern(size)[size-n:])
					if err != nil {
						return describeCopy("received", int64(size), ignoreEOF(err)) +
							fmt.Sprintf(" the right bytes: %t", right)
					}
				}
			})
			sent, cuts, onlyTimeouts := 0, 0, true
			data := pattern(muchData)
			for sent < muchData {
				srv.Conn.SetWriteDeadline(time.Now().Add(time.Millisecond))
				n, err := srv.Conn.Write(data[sent:])
				sent += n
				if err != nil {
					if cuts++; cuts <= cutsAwaited {
						cut <- true
					}
					onlyTimeouts = onlyTimeouts && errors.Is(err, os.ErrDeadlineExceeded)
				}
			}
			srv.close()
			received.end()
			s.note("cut at least once: %t", cuts > 0)
			s.note("only timeouts: %t", onlyTimeouts)
		},
	}, {
		name:  "moved later while blocked",
		shows: []string{`blocked srv.Write\(16777216 bytes, sha256 \w+\): 16777216 nil`},
		play: func(s *stage) {
			s.moveInTime(func(deadline time.Time, moved func() bool) {
				srv, cli := s.pair()
				srv.deadline("SetWriteDeadline", deadline)
				blocked := srv.beginWrite(pattern(muchData))
				srv.deadline("SetWriteDeadline", later())
				if moved() {
					blocked.stillBlocked()
					reading := cli.beginReadAll()
					blocked.end()
					srv.close()
					reading.end()
				}
			})
		},
	}, {
		name:  "of both directions at once",
		shows: []string{`blocked srv.Read\(8\): 0 "" OpError\{"read".*os\.ErrDeadlineExceeded`, `some: true OpError\{"write".*os\.ErrDeadlineExceeded`},
		play: func(s *stage) {
			srv, cli := s.pair()
			read, write := srv.beginRead(8), srv.beginCutWrite(cli)
			srv.deadline("SetDeadline", soon())
			read.end()
			write.end()
		},
	}}))
}
