package h2spec

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// A server is one to test. serve serves l, over TLS if config is not nil, and returns a function
// that ends that.
type server struct {
	name   string
	listen testnet.ListenFunc
	serve  func(l net.Listener, config *tls.Config) (stop func() error)
}

var servers = []server{
	{onNet, net.Listen, handler(func(srv *http.Server) testnet.WebServer { return srv })},
	{"httpadapter", percore.Listen, handler(func(srv *http.Server) testnet.WebServer {
		return httpadapter.Wrap(srv)
	})},
	{"h2", percore.Listen, streams},
	{"h2 on net", net.Listen, streams},
}

const onNet = "net/http"

// netFails are the cases that net/http does not pass in every version of Go, with the reason.
var netFails = map[string]string{
	"http2/4.2/3":     "does not end the connection when HEADERS are too long",
	"http2/6.5.3/1":   "takes no setting twice in a frame",
	"http2/8.1.2.2/1": "answers 400, and does not reset the stream",
	"http2/8.1.2.2/2": "answers 400, and does not reset the stream",
}

// body is the body of all answers. Some cases need a few bytes.
const body = "Hello, HTTP/2!"

// handler returns the serve of an http.Server.
func handler(wrap func(*http.Server) testnet.WebServer) func(net.Listener, *tls.Config) func() error {
	return func(l net.Listener, config *tls.Config) func() error {
		srv := &http.Server{TLSConfig: config, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
		srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if _, err := io.Copy(io.Discard, r.Body); err == nil {
				_, _ = io.WriteString(w, body)
			}
		})
		srv.Protocols.SetHTTP2(true)
		srv.Protocols.SetUnencryptedHTTP2(true)
		server := wrap(srv)
		return run(server.Close, http.ErrServerClosed, func() error {
			if config != nil {
				return server.ServeTLS(l, "", "")
			}
			return server.Serve(l)
		})
	}
}

// streams is the serve of a server of streams.
func streams(l net.Listener, config *tls.Config) func() error {
	server := h2.New(h2.HandlerFunc(func(s *h2.Stream, r *h2.Request) {
		if _, err := io.Copy(io.Discard, s); err == nil {
			_ = s.Send(h2.Message{Status: 200, Body: []byte(body), End: true})
		}
	}), h2.Config{TLS: config})
	return run(server.Close, h2.ErrServerClosed, func() error { return server.Serve(l) })
}

// run calls serve, and returns a function that ends it, and reports whether it ended as it should.
func run(stop func() error, want error, serve func() error) func() error {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	return func() error {
		if err := stop(); err != nil {
			return err
		}
		if err := <-served; !errors.Is(err, want) {
			return fmt.Errorf("Serve: got %v, want %v", err, want)
		}
		return nil
	}
}

// TestH2spec runs all cases of h2spec, the strict ones among them, against each server.
func TestH2spec(t *testing.T) {
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) { s.test(t, false) })
		t.Run(s.name+",tls", func(t *testing.T) { s.test(t, true) })
	}
}

func (s server) test(t *testing.T, secure bool) {
	testnet.NoLeaks(t)
	l := testnet.Listen(t, s.listen, testnet.TCP4)
	if pl, ok := l.(*percore.Listener); ok && pl.Stats().Sockets == 0 {
		t.Skip("there is no engine in this build: run it without the build tag percore_net")
	}
	var serverTLS *tls.Config
	if secure {
		serverTLS, _ = testnet.TLS(t)
	}
	stop := s.serve(l, serverTLS)
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	cases := allCases()
	const parallel = 8
	turns := make(chan bool, parallel)
	var wg sync.WaitGroup
	for _, c := range cases {
		turns <- true
		wg.Go(func() {
			defer func() { <-turns }()
			at := &config.Config{
				Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, Path: "/",
				TLS: secure, Insecure: true, Strict: true, MaxHeaderLen: 4000, Timeout: testnet.HangTimeout,
			}
			reason := ""
			if s.name == onNet {
				if reason = netFails[c.id]; reason != "" {
					at.Timeout = time.Second // it waits for what does not come
				}
			}
			switch err := c.run(at); {
			case err == nil:
			case reason != "":
				t.Logf("%s: net/http %s", c.id, reason)
			default:
				t.Errorf("%s: %s: %s\n%v", c.id, c.Desc, c.Requirement, err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d cases", len(cases))
	if len(cases) < casesLeast {
		t.Errorf("got %d cases, want %d at least", len(cases), casesLeast)
	}
}

// casesLeast is how many cases h2spec has.
const casesLeast = 146

// A testCase is one of h2spec's.
type testCase struct {
	*spec.TestCase
	id string // as h2spec prints it
}

// allCases returns all cases.
func allCases() (all []testCase) {
	for _, g := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		all = appendCases(all, g)
	}
	return all
}

func appendCases(all []testCase, g *spec.TestGroup) []testCase {
	for _, tests := range [][]*spec.TestCase{g.Tests, g.StrictTests} {
		for i, tc := range tests {
			all = append(all, testCase{tc, fmt.Sprintf("%s/%d", g.ID(), i+1)})
		}
	}
	for _, sub := range g.Groups {
		all = appendCases(all, sub)
	}
	return all
}

// run runs a case on a connection of its own. A case that h2spec skips, because the server lacks
// something, has failed.
func (c testCase) run(at *config.Config) error {
	conn, err := spec.Dial(at)
	if err != nil {
		return err
	}
	defer conn.Close()
	err = c.Run(at, conn)
	var wrong *spec.TestError
	if errors.As(err, &wrong) && strings.HasSuffix(wrong.Actual, "connection reset by peer") {
		for _, want := range wrong.Expected {
			if want == spec.ExpectedConnectionClosed {
				return nil // h2spec does not know a reset when it sees one
			}
		}
	}
	return err
}
