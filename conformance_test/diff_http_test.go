package conformance

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// A webStage is an http.Server on a listener of the stage. All its traces are noted in the
// transcript: answers, error log, connection states, and what handlers saw.
type webStage struct {
	*stage
	ln     net.Listener
	server testnet.WebServer
	served chan error

	mu     sync.Mutex
	log    bytes.Buffer
	states []string
	closed int
	seen   []string
}

// serveWeb starts a server after configure has changed it.
func serveWeb(s *stage, handler func(w *webStage, rw http.ResponseWriter, r *http.Request), configure func(*http.Server)) *webStage {
	w := &webStage{stage: s, ln: s.listen(), served: make(chan error, 1)}
	server := &http.Server{
		Handler:   http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { handler(w, rw, r) }),
		ErrorLog:  log.New(w, "", 0),
		ConnState: w.connState,
	}
	if configure != nil {
		configure(server)
	}
	w.server = s.engine.wrap(server)
	go func() {
		if server.TLSConfig != nil {
			w.served <- w.server.ServeTLS(w.ln, "", "")
			return
		}
		w.served <- w.server.Serve(w.ln)
	}()
	s.Cleanup(func() { w.server.Close() })
	return w
}

// Write adds a line to the server's error log.
func (w *webStage) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(line)
}

func (w *webStage) connState(_ net.Conn, state http.ConnState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states = append(w.states, state.String())
	if state == http.StateClosed || state == http.StateHijacked {
		w.closed++
	}
}

// see lets a handler add a line to the transcript.
func (w *webStage) see(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, "handler "+fmt.Sprintf(format, args...))
}

// dial connects a raw client.
func (w *webStage) dial() *actor {
	c := testnet.Dial(w, w.ln)
	w.nameAddr(c.LocalAddr(), "cli")
	return &actor{Conn: c, stage: w.stage, name: "cli"}
}

var (
	dateHeader = regexp.MustCompile(`Date: [^\r]*`)
	logDate    = regexp.MustCompile(`(?m)^\d{4}/.. `)
)

// answer reads everything that the server sends and notes it.
func (w *webStage) answer(cli *actor) {
	data, err := io.ReadAll(cli.Conn)
	w.note("answer %s %s", digestAnswer(data), describeError(err))
}

func digestAnswer(data []byte) string {
	data = dateHeader.ReplaceAll(data, []byte("Date: now"))
	if len(data) > 2000 {
		return digest(data)
	}
	return fmt.Sprintf("%q", data)
}

// finish waits until the server has closed conns connections, stops it, and notes all its traces.
func (w *webStage) finish(conns int) {
	testnet.Eventually(w, "the server closing its connections", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.closed >= conns
	})
	w.noteError("server.Close", w.server.Close())
	w.noteError("server.Serve", testnet.Receive(w, "Serve", w.served))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, line := range w.seen {
		w.note("%s", line)
	}
	w.note("states %v", w.states)
	w.note("log %q", logDate.ReplaceAllString(w.log.String(), ""))
}

const hello = "GET /hello HTTP/1.1\r\nHost: test\r\n\r\n"

func sayHello(w *webStage, rw http.ResponseWriter, r *http.Request) {
	w.see("%s %s from %s", r.Method, r.URL, r.RemoteAddr)
	io.WriteString(rw, "hello")
}

// readBody reports how the request's body ends.
func readBody(w *webStage, rw http.ResponseWriter, r *http.Request) {
	n, err := io.Copy(io.Discard, r.Body)
	w.see("body of %d, %s", n, describeError(err))
	fmt.Fprintf(rw, "%d", n)
}

// TestDiffHTTPServer watches an http.Server whose decisions depend on what its connections' methods
// return. net/http answers, logs and closes differently for io.EOF, timeouts, OpErrors and all
// other errors.
func TestDiffHTTPServer(t *testing.T) {
	playWebScripts(t, []script{{
		name:  "requests, then the client closes",
		shows: []string{`answer .*hello.*hello`, `states \[new active idle active idle closed\]`, `log ""`},
		play: func(s *stage) {
			w := serveWeb(s, sayHello, nil)
			cli := w.dial()
			cli.write(hello)
			cli.awaitReadable(100)
			cli.write(hello)
			cli.closeWrite()
			w.answer(cli)
			w.finish(1)
		},
	}, {
		name:  "nothing but a reset",
		kinds: onTCP,
		shows: []string{`states \[new closed\]`},
		play: func(s *stage) {
			w := serveWeb(s, sayHello, nil)
			w.dial().reset()
			w.finish(1)
		},
	}, {
		name:  "half a request and a reset",
		kinds: onTCP,
		play: func(s *stage) {
			w := serveWeb(s, sayHello, nil)
			cli := w.dial()
			cli.write(hello[:20])
			letBlock() // for the server to read it
			cli.reset()
			w.finish(1)
		},
	}, {
		name:  "a keep-alive connection that is reset",
		kinds: onTCP,
		shows: []string{`states \[new active idle closed\]`},
		play: func(s *stage) {
			w := serveWeb(s, sayHello, nil)
			cli := w.dial()
			cli.write(hello)
			cli.awaitReadable(100)
			letBlock()
			cli.reset()
			w.finish(1)
		},
	}, {
		name:  "a header that never ends",
		shows: []string{`states \[new active closed\]`},
		play: func(s *stage) {
			s.waitInTime(func(wait time.Duration) bool {
				w := serveWeb(s, sayHello, func(server *http.Server) { server.ReadHeaderTimeout = wait })
				cli := w.dial()
				cli.write(hello[:20])
				w.answer(cli)
				w.finish(1)
				return slices.Contains(w.states, http.StateActive.String()) // the first bytes came in time
			})
		},
	}, {
		name:  "a connection that never speaks",
		shows: []string{`answer "" nil`, `states \[new closed\]`},
		play: func(s *stage) {
			w := serveWeb(s, sayHello, func(server *http.Server) { server.ReadTimeout = 20 * time.Millisecond })
			w.answer(w.dial())
			w.finish(1)
		},
	}, {
		name:  "a connection that idles",
		shows: []string{`hello" nil`, `states \[new active idle closed\]`},
		play: func(s *stage) {
			w := serveWeb(s, sayHello, func(server *http.Server) { server.IdleTimeout = 20 * time.Millisecond })
			cli := w.dial()
			cli.write(hello)
			w.answer(cli)
			w.finish(1)
		},
	}, {
		name:  "a body that stalls",
		shows: []string{`body of 4, OpError\{"read".*os\.ErrDeadlineExceeded`},
		play: func(s *stage) {
			s.waitInTime(func(wait time.Duration) bool {
				w := serveWeb(s, readBody, func(server *http.Server) { server.ReadTimeout = wait })
				cli := w.dial()
				cli.write("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhalf")
				w.answer(cli)
				w.finish(1)
				return len(w.seen) > 0 // the header arrived in time
			})
		},
	}, {
		name:  "a body that is reset",
		kinds: onTCP,
		shows: []string{`body of 4, OpError\{"read".*ECONNRESET`},
		play: func(s *stage) {
			reading := make(chan struct{}, 1)
			w := serveWeb(s, func(w *webStage, rw http.ResponseWriter, r *http.Request) {
				reading <- struct{}{}
				readBody(w, rw, r)
			}, nil)
			cli := w.dial()
			cli.write("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nhalf")
			testnet.Receive(s, "the handler", reading)
			cli.reset()
			w.finish(1)
		},
	}, {
		name:  "a client that goes while the handler works",
		shows: []string{`context: context.Canceled`},
		play: func(s *stage) {
			working := make(chan struct{}, 1)
			w := serveWeb(s, func(w *webStage, rw http.ResponseWriter, r *http.Request) {
				working <- struct{}{}
				<-r.Context().Done()
				w.see("context: %s", describeError(context.Cause(r.Context())))
			}, nil)
			cli := w.dial()
			cli.write(hello)
			testnet.Receive(s, "the handler", working)
			cli.close()
			w.finish(1)
		},
	}, {
		name:  "a client that does not read",
		shows: []string{`some: true OpError\{"write".*os\.ErrDeadlineExceeded`},
		play: func(s *stage) {
			s.waitInTime(func(wait time.Duration) bool {
				begun := false
				w := serveWeb(s, func(w *webStage, rw http.ResponseWriter, r *http.Request) {
					rw.Header().Set("Content-Length", fmt.Sprint(muchData))
					n, err := rw.Write(pattern(muchData))
					begun = n > 0
					w.see("wrote some: %t %s", begun, describeError(err))
				}, func(server *http.Server) { server.WriteTimeout = wait })
				cli := w.dial()
				cli.write(hello)
				w.finish(1)
				return begun
			})
		},
	}, {
		name:  "deadlines set by the handler",
		shows: []string{`read: .*os\.ErrDeadlineExceeded`},
		play: func(s *stage) {
			w := serveWeb(s, func(w *webStage, rw http.ResponseWriter, r *http.Request) {
				control := http.NewResponseController(rw)
				w.see("SetReadDeadline: %s", describeError(control.SetReadDeadline(soon())))
				_, err := io.ReadAll(r.Body)
				w.see("read: %s", describeError(err))
				w.see("SetWriteDeadline: %s", describeError(control.SetWriteDeadline(later())))
				io.WriteString(rw, "late")
			}, nil)
			cli := w.dial()
			cli.write("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 4\r\n\r\n")
			w.answer(cli)
			w.finish(1)
		},
	}, {
		name:  "a hijacked connection",
		shows: []string{`answer "HTTP/1.1 101 Switching.*echo: one, echo: two"`, `states \[new active hijacked\]`},
		play: func(s *stage) {
			w := serveWeb(s, func(w *webStage, rw http.ResponseWriter, r *http.Request) {
				conn, buffered, err := http.NewResponseController(rw).Hijack()
				w.see("Hijack: %s", describeError(err))
				if err != nil {
					return
				}
				defer conn.Close()
				io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
				for range 2 {
					line, err := buffered.ReadString('\n')
					w.see("line %q %s", line, describeError(err))
					io.WriteString(conn, "echo: "+strings.TrimSuffix(line, "\n")+", ")
				}
				_, err = buffered.ReadByte()
				w.see("end: %s", describeError(err))
			}, nil)
			cli := w.dial()
			cli.write(hello + "one\n")
			cli.awaitReadable(47)
			cli.write("two\n")
			cli.closeWrite()
			data, _ := io.ReadAll(cli.Conn)
			s.note("answer %q", strings.TrimSuffix(string(data), ", "))
			w.finish(1)
		},
	}})
}

// TestDiffTLSServer is TestDiffHTTPServer for handshakes that fail.
func TestDiffTLSServer(t *testing.T) {
	serverConfig, _ := testnet.TLS(t)
	secure := func(server *http.Server) { server.TLSConfig = serverConfig.Clone() }
	playWebScripts(t, []script{{
		name:  "plain text",
		shows: []string{`log "http: TLS handshake error from .*sent an HTTP request to an HTTPS server`, `400 Bad Request`},
		kinds: onTCP,
		play: func(s *stage) {
			w := serveWeb(s, sayHello, secure)
			cli := w.dial()
			cli.write(hello)
			w.answer(cli)
			w.finish(1)
		},
	}, {
		name:  "a reset",
		shows: []string{`log "http: TLS handshake error from .*: read tcp.* read: connection reset by peer`},
		kinds: onTCP,
		play: func(s *stage) {
			w := serveWeb(s, sayHello, secure)
			w.dial().reset()
			w.finish(1)
		},
	}, {
		name:  "a client that mistrusts the certificate",
		shows: []string{`bad certificate|unknown certificate`},
		kinds: onTCP,
		play: func(s *stage) {
			w := serveWeb(s, sayHello, secure)
			cli := w.dial()
			err := tls.Client(cli.Conn, &tls.Config{ServerName: "localhost"}).Handshake()
			s.note("mistrusted: %t", err != nil)
			cli.Conn.Close()
			w.finish(1)
		},
	}})
}
