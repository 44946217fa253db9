package conformance

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// errSource is the error that the tests' failing readers and writers return.
var errSource = errors.New("source failed")

// shortWriter writes less than it is given and returns no error. io.Writer forbids that, and
// callers must notice it.
type shortWriter struct{ takes int }

func (w shortWriter) Write(p []byte) (int, error) { return min(w.takes, len(p)), nil }

// failingWriter writes a number of bytes and then fails.
type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	n := min(w.left, len(p))
	w.left -= n
	if n < len(p) {
		return n, errSource
	}
	return n, nil
}

// stutter returns (0, nil) before every byte.
type stutter struct {
	r     io.Reader
	empty bool
}

func (s *stutter) Read(p []byte) (int, error) {
	if s.empty = !s.empty; s.empty {
		return 0, nil
	}
	return s.r.Read(p[:min(1, len(p))])
}

// onlyReader and onlyWriter hide every other method.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)

func (a *actor) readFrom(what string, r io.Reader) {
	n, err := as[io.ReaderFrom](a).ReadFrom(r)
	a.stage.note("%s", describeCopy(a.name+".ReadFrom("+what+")", n, err))
}

func (a *actor) writeTo(what string, w io.Writer) {
	n, err := as[io.WriterTo](a).WriteTo(w)
	a.stage.note("%s", describeCopy(a.name+".WriteTo("+what+")", n, err))
}

// noteOffset notes a file's offset.
func (s *stage) noteOffset(f *os.File) {
	offset, err := f.Seek(0, io.SeekCurrent)
	s.note("file offset: %d %s", offset, describeError(err))
}

// TestDiffReadFrom calls ReadFrom with every kind of source on TCP connections, the only net
// connections that have it.
func TestDiffReadFrom(t *testing.T) {
	playScripts(t, []script{{
		name:  "readers",
		kinds: onTCP,
		shows: []string{`ReadFrom\(stuttering\): 7 nil`, `ReadFrom\(data with EOF\): 4 nil`, `a device\): 70000 nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			reading := cli.beginReadAll()
			srv.readFrom("empty", strings.NewReader(""))
			srv.readFrom("text", strings.NewReader("text, "))
			srv.readFrom("bytes", bytes.NewReader(pattern(200_000)))
			srv.readFrom("one byte at a time", iotest.OneByteReader(strings.NewReader("slowly")))
			srv.readFrom("data with EOF", iotest.DataErrReader(strings.NewReader("last")))
			srv.readFrom("stuttering", &stutter{r: strings.NewReader("st-stut")})
			zero, err := os.Open("/dev/zero")
			if err != nil {
				s.Fatalf("/dev/zero: %v", err)
			}
			defer zero.Close()
			srv.readFrom("a device", io.LimitReader(zero, 70_000))
			srv.close()
			reading.end()
		},
	}, {
		name:  "limited readers",
		kinds: onTCP,
		shows: []string{`under: 4 nil`, `left 0`},
		play: func(s *stage) {
			srv, cli := s.pair()
			reading := cli.beginReadAll()
			for _, c := range []struct {
				what  string
				limit int64
			}{{"under", 4}, {"at", 10}, {"over", 16}, {"zero", 0}, {"negative", -1}} {
				source := strings.NewReader("0123456789")
				limited := &io.LimitedReader{R: source, N: c.limit}
				n, err := as[io.ReaderFrom](srv).ReadFrom(limited)
				s.note("%s, left %d of the limit, %d of the source", describeCopy(c.what, n, err), limited.N, source.Len())
			}
			srv.close()
			reading.end()
		},
	}, {
		name:  "a source that fails",
		kinds: onTCP,
		shows: []string{`ReadFrom\(failing at once\): 0 OpError\{"readfrom".*source failed`, `ReadFrom\(failing later\): 6 `, `cli.ReadAll: "before" nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.readFrom("failing at once", iotest.ErrReader(errSource))
			srv.readFrom("failing later", io.MultiReader(strings.NewReader("before"), iotest.ErrReader(errSource)))
			srv.readFrom("ending badly", iotest.ErrReader(io.ErrUnexpectedEOF))
			srv.close()
			cli.readAll()
		},
	}, {
		name:  "on a closed connection",
		kinds: onTCP,
		shows: []string{`OpError\{"readfrom".*net\.ErrClosed`},
		play: func(s *stage) {
			srv, _ := s.pair()
			srv.close()
			source := strings.NewReader("unsent")
			srv.readFrom("text", onlyReader{source})
			s.note("left %d of the source", source.Len())
			srv.readFrom("empty", onlyReader{strings.NewReader("")})
		},
	}, {
		name:  "on a reset connection",
		kinds: onTCP,
		shows: []string{`OpError\{"readfrom".*ECONNRESET`, `OpError\{"readfrom".*EPIPE`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.reset()
			srv.awaitBroken()
			srv.readFrom("text", onlyReader{strings.NewReader("unsent")})
			srv.readFrom("text", onlyReader{strings.NewReader("unsent")})
		},
	}, {
		name:  "with an expired deadline",
		kinds: onTCP,
		shows: []string{`ReadFrom\(text\): 0 OpError\{"readfrom".*os\.ErrDeadlineExceeded.*timeout=true`},
		play: func(s *stage) {
			srv, cli := s.pair()
			srv.deadline("SetWriteDeadline", longAgo)
			source := strings.NewReader("kept?")
			srv.readFrom("text", onlyReader{source})
			s.note("left %d of the source", source.Len())
			srv.close()
			cli.readAll()
		},
	}, {
		name:  "cut by a deadline, counting what the peer receives",
		kinds: onTCP,
		shows: []string{`received as counted: true`, `ErrDeadlineExceeded`},
		play: func(s *stage) {
			s.waitInTime(func(wait time.Duration) bool {
				srv, cli := s.pair()
				srv.deadline("SetWriteDeadline", time.Now().Add(wait))
				n, err := as[io.ReaderFrom](srv).ReadFrom(onlyReader{bytes.NewReader(pattern(muchData))})
				s.note("some: %t %s", n > 0, describeError(err))
				srv.close()
				received, err := io.ReadAll(cli.Conn)
				s.note("received as counted: %t, right bytes: %t", int64(len(received)) == n, bytes.Equal(received, pattern(len(received))))
				s.noteError("reading", err)
				return n > 0
			})
		},
	}, {
		name:  "a closed file and a directory",
		kinds: onTCP,
		shows: []string{`OpError\{"readfrom".*file already closed`},
		play: func(s *stage) {
			srv, cli := s.pair()
			f := testnet.TempFile(s, []byte("content"))
			f.Close()
			s.names = append(s.names, f.Name(), "<file>")
			srv.readFrom("closed", onlyReader{f})
			srv.write("usable")
			srv.close()
			cli.readAll()
		},
	}})
}

func TestDiffWriteTo(t *testing.T) {
	playScripts(t, []script{{
		name:  "writers",
		kinds: onTCP,
		shows: []string{`WriteTo\(buffer\): 200000 nil`},
		play: func(s *stage) {
			srv, cli := s.pair()
			go func() {
				cli.Conn.Write(pattern(200_000))
				cli.Conn.Close()
			}()
			var buf bytes.Buffer
			srv.writeTo("buffer", onlyWriter{&buf})
			s.note("content %s", digest(buf.Bytes()))
			srv.writeTo("buffer at the end", onlyWriter{&buf})
		},
	}, {
		name:  "a writer that fails",
		kinds: onTCP,
		shows: []string{`WriteTo\(failing\): 4 OpError\{"writeto".*source failed`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("0123456789")
			srv.awaitReadable(10)
			srv.writeTo("failing", &failingWriter{left: 4})
			cli.write("more")
			srv.awaitReadable(4)
			srv.read(20)
		},
	}, {
		name:  "a writer that takes less",
		kinds: onTCP,
		shows: []string{`WriteTo\(short\): 3 OpError\{"writeto".*io\.ErrShortWrite`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("0123456789")
			srv.awaitReadable(10)
			srv.writeTo("short", shortWriter{takes: 3})
		},
	}, {
		name:  "deadlines",
		kinds: onTCP,
		shows: []string{`WriteTo\(buffer\): 0 OpError\{"writeto".*os\.ErrDeadlineExceeded`, `4 OpError\{"writeto".*os\.ErrDeadlineExceeded`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("data")
			srv.awaitReadable(4)
			var buf bytes.Buffer
			srv.deadline("SetReadDeadline", longAgo)
			srv.writeTo("buffer", onlyWriter{&buf})
			s.waitInTime(func(wait time.Duration) bool {
				srv.deadline("SetReadDeadline", time.Now().Add(wait))
				srv.writeTo("buffer", onlyWriter{&buf})
				return buf.Len() > 0
			})
			s.note("content %q", buf.String())
		},
	}, {
		name:  "a closed connection, and one closed meanwhile",
		kinds: onTCP,
		shows: []string{`blocked WriteTo: 4 OpError\{"writeto".*net\.ErrClosed`, `WriteTo\(nothing\): 0 OpError\{"writeto".*net\.ErrClosed`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("data")
			srv.awaitReadable(4)
			taken := make(chan struct{})
			blocked := s.begin("WriteTo", func() string {
				n, err := as[io.WriterTo](srv).WriteTo(writerFunc(func(p []byte) (int, error) {
					close(taken)
					return len(p), nil
				}))
				return describeCopy("WriteTo", n, err)
			})
			testnet.Receive(s, "the first bytes", taken)
			srv.close()
			blocked.end()
			srv.writeTo("nothing", io.Discard)
		},
	}, {
		name:  "a reset connection",
		kinds: onTCP,
		shows: []string{`WriteTo\(discard\): \d+ OpError\{"writeto".*ECONNRESET`},
		play: func(s *stage) {
			srv, cli := s.pair()
			cli.write("data")
			srv.awaitReadable(4)
			cli.reset()
			srv.awaitBroken()
			srv.writeTo("discard", onlyWriter{io.Discard})
			srv.writeTo("discard", onlyWriter{io.Discard})
		},
	}})
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestDiffIOCopy copies as programs do, on every kind of connection. TestDiffZeroCopy does so in all
// situations of places between which the kernel moves the bytes.
func TestDiffIOCopy(t *testing.T) {
	playScripts(t, []script{{
		name:  "errors",
		shows: []string{`source failed`, `EPIPE|ECONNRESET`},
		play: func(s *stage) {
			srv, cli := s.pair()
			n, err := io.Copy(srv.Conn, io.MultiReader(strings.NewReader("before"), iotest.ErrReader(errSource)))
			s.note("%s", describeCopy("failing source", n, err))
			cli.awaitReadable(6)
			cli.close() // unread data causes a reset
			srv.awaitBroken()
			n, err = io.Copy(srv.Conn, onlyReader{strings.NewReader("lost")})
			s.note("%s", describeCopy("reset", n, err))
			n, err = io.Copy(srv.Conn, onlyReader{strings.NewReader("lost")})
			s.note("%s", describeCopy("broken", n, err))
			srv.close()
			n, err = io.Copy(srv.Conn, onlyReader{strings.NewReader("lost")})
			s.note("%s", describeCopy("closed", n, err))
			n, err = io.Copy(onlyWriter{io.Discard}, srv.Conn)
			s.note("%s", describeCopy("from closed", n, err))
		},
	}, {
		name:  "vectored",
		shows: []string{`net.Buffers: 2000000 nil, 0 left`, `cli.ReadAll: 2000000 bytes`},
		play: func(s *stage) {
			srv, cli := s.pair()
			reading := cli.beginReadAll()
			var buffers net.Buffers
			for rest := pattern(2_000_000); len(rest) > 0; {
				n := min(len(rest), 1+len(buffers)%3000)
				buffers = append(buffers, rest[:n])
				rest = rest[n:]
			}
			n, err := buffers.WriteTo(srv.Conn)
			s.note("net.Buffers: %d %s, %d left", n, describeError(err), len(buffers))
			srv.close()
			reading.end()
		},
	}})
}
