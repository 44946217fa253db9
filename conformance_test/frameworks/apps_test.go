package frameworks

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	chimiddleware "github.com/go-chi/chi/v5/middleware"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"

	"github.com/percore/percore/internal/testnet"
)

// message is sent in both directions as JSON.
type message struct {
	Text string `json:"text"`
	Size int64  `json:"size"`
}

// low holds the handlers that need only the ResponseWriter of a framework. They use the layer below
// it: flushing, hijacking, deadlines.
type low struct {
	resume  chan struct{} // lets stream continue
	waiting chan struct{} // gone waits for the client to leave
	gone    chan error    // why it stopped waiting
}

func newLow() *low {
	return &low{make(chan struct{}), make(chan struct{}, 1), make(chan error, 1)}
}

// stream sends an event, and another one when the test says so.
func (l *low) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []string{"one", "two"} {
		fmt.Fprintf(w, "data: %s\n\n", event)
		if err := http.NewResponseController(w).Flush(); err != nil {
			panic(err)
		}
		select {
		case <-l.resume:
		case <-r.Context().Done():
			return
		}
	}
}

// leave waits until the client goes away.
func (l *low) leave(w http.ResponseWriter, r *http.Request) {
	var notified <-chan bool
	//lint:ignore SA1019 frameworks still pass it on
	if n, ok := w.(http.CloseNotifier); ok {
		notified = n.CloseNotify()
	}
	l.waiting <- struct{}{}
	<-r.Context().Done()
	if notified != nil {
		<-notified
	}
	l.gone <- context.Cause(r.Context())
}

// raw takes the connection over and sends back each line. After the last line it says so, and ends
// its side.
func (l *low) raw(w http.ResponseWriter, r *http.Request) {
	c, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: lines\r\nConnection: Upgrade\r\n\r\n")
	for {
		line, err := rw.ReadString('\n')
		if err != nil {
			fmt.Fprintf(c, "end: %v\n", err)
			c.(interface{ CloseWrite() error }).CloseWrite()
			return
		}
		fmt.Fprintf(c, "you said %s", line)
	}
}

// late sets a deadline that leaves no time for the body, and reports the error.
func (l *low) late(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	setting := errors.Join(rc.SetReadDeadline(time.Now().Add(-time.Second)), rc.SetWriteDeadline(time.Now().Add(testnet.HangTimeout)))
	_, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "set: %v, timeout %t", setting, errors.Is(err, os.ErrDeadlineExceeded))
}

// An app is always the same site, made with one of the frameworks.
type app struct {
	name    string
	handler func(l *low, dir string) http.Handler
}

var apps = []app{{"gin", ginApp}, {"echo", echoApp}, {"chi", chiApp}}

func ginApp(l *low, dir string) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.Use(gin.RecoveryWithWriter(io.Discard))
	e.GET("/hello/:name", func(c *gin.Context) { c.String(http.StatusOK, "hello %s", c.Param("name")) })
	e.POST("/json", func(c *gin.Context) {
		var m message
		if err := c.ShouldBindJSON(&m); err != nil {
			c.JSON(http.StatusBadRequest, gin.H{"error": err.Error()})
			return
		}
		c.JSON(http.StatusOK, m)
	})
	e.POST("/upload", func(c *gin.Context) {
		f, err := c.FormFile("file")
		if err != nil {
			c.AbortWithError(http.StatusBadRequest, err)
			return
		}
		c.JSON(http.StatusOK, message{f.Filename, f.Size})
	})
	e.POST("/ignore", func(c *gin.Context) { c.Status(http.StatusAccepted) })
	e.GET("/panic", func(*gin.Context) { panic("on purpose") })
	e.Static("/files", dir)
	for path, handle := range lowRoutes(l) {
		e.Any(path, func(c *gin.Context) { handle(c.Writer, c.Request) })
	}
	return e
}

func echoApp(l *low, dir string) http.Handler {
	e := echo.New()
	e.Logger = slog.New(slog.DiscardHandler)
	e.Use(echomiddleware.Recover())
	e.GET("/hello/:name", func(c *echo.Context) error { return c.String(http.StatusOK, "hello "+c.Param("name")) })
	e.POST("/json", func(c *echo.Context) error {
		var m message
		if err := c.Bind(&m); err != nil {
			return err
		}
		return c.JSON(http.StatusOK, m)
	})
	e.POST("/upload", func(c *echo.Context) error {
		f, err := c.FormFile("file")
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, message{f.Filename, f.Size})
	})
	e.POST("/ignore", func(c *echo.Context) error { return c.NoContent(http.StatusAccepted) })
	e.GET("/panic", func(*echo.Context) error { panic("on purpose") })
	e.StaticFS("/files", os.DirFS(dir))
	for path, handle := range lowRoutes(l) {
		e.Any(path, func(c *echo.Context) error {
			handle(c.Response(), c.Request())
			return nil
		})
	}
	return e
}

func chiApp(l *low, dir string) http.Handler {
	e := chi.NewRouter()
	e.Use(chimiddleware.RequestLogger(quiet{}), chimiddleware.Recoverer)
	e.Get("/hello/{name}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s", chi.URLParam(r, "name")) })
	e.Post("/json", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || len(body) == 0 || body[0] != '{' {
			http.Error(w, "not JSON", http.StatusBadRequest)
			return
		}
		w.Write(body)
	})
	e.Post("/upload", func(w http.ResponseWriter, r *http.Request) {
		_, f, err := r.FormFile("file")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintf(w, `{"text":%q,"size":%d}`, f.Filename, f.Size)
	})
	e.Post("/ignore", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusAccepted) })
	e.Get("/panic", func(http.ResponseWriter, *http.Request) { panic("on purpose") })
	e.Handle("/files/*", http.StripPrefix("/files", http.FileServer(http.Dir(dir))))
	for path, handle := range lowRoutes(l) {
		e.HandleFunc(path, handle)
	}
	return e
}

// quiet replaces chi's log of requests and of panics. (With a log chi wraps net/http's
// ResponseWriter in its own.)
type quiet struct{}

func (q quiet) NewLogEntry(*http.Request) chimiddleware.LogEntry { return q }
func (quiet) Write(int, int, http.Header, time.Duration, any)    {}
func (quiet) Panic(any, []byte)                                  {}

func lowRoutes(l *low) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{"/stream": l.stream, "/leave": l.leave, "/raw": l.raw, "/late": l.late}
}

// fileBytes is the size of the file that the apps serve: more than a socket's buffers hold.
const fileBytes = 3_000_000

// TestFrameworks visits every page of each app. Where connections are parked, the connection is
// parked between any two pages.
func TestFrameworks(t *testing.T) {
	dir := t.TempDir()
	content := strings.Repeat("0123456789", fileBytes/10)
	if err := os.WriteFile(filepath.Join(dir, "file.bin"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, a := range apps {
		t.Run(a.name, func(t *testing.T) {
			onEachWay(t, func(s *stage) {
				l := newLow()
				visitAll(s.start(&http.Server{Handler: a.handler(l, dir)}, setup{}), l, content)
			})
		})
	}
}

// visitAll plays the client over HTTP/1.1.
func visitAll(st *site, l *low, content string) {
	visitPages(st, content)
	watchStream(st, l)
	st.awaitParked(0)
	goAway(st, l)
	talkRaw(st)
	sendLate(st)
	st.s.want("the last page", st.get("/hello/last"), "hello last")
	st.awaitParked(0)
}

// visitPages visits the pages that are the same in every protocol.
func visitPages(st *site, content string) {
	s := st.s
	s.want("a greeting", st.get("/hello/world"), "hello world")
	st.awaitParked(0)
	s.want("no such page", fmt.Sprint(strings.Contains(strings.ToLower(st.get("/nowhere")), "not found")), "true")
	st.awaitParked(0)
	s.want("JSON", strings.TrimSpace(st.do("POST", "/json", "application/json", strings.NewReader(`{"text":"x","size":7}`))), `{"text":"x","size":7}`)
	st.awaitParked(0)
	st.do("POST", "/json", "application/json", strings.NewReader(`nonsense`))
	st.awaitParked(0)

	var form bytes.Buffer
	mw := multipart.NewWriter(&form)
	mw.SetBoundary("the-same-each-time")
	part, _ := mw.CreateFormFile("file", "upload.bin")
	io.WriteString(part, content)
	mw.Close()
	s.want("an upload", strings.TrimSpace(st.do("POST", "/upload", mw.FormDataContentType(), &form)), fmt.Sprintf(`{"text":"upload.bin","size":%d}`, fileBytes))
	st.awaitParked(0)
	st.do("POST", "/ignore", "text/plain", strings.NewReader(content[:100_000]))
	st.awaitParked(0)
	st.get("/panic")
	st.awaitParked(0)
	s.want("a file", st.get("/files/file.bin"), content)
	st.awaitParked(0)
	s.want("a part of a file", st.get("/files/file.bin", "Range", "bytes=1234567-2345678"), content[1234567:2345679])
	st.awaitParked(0)
	s.want("a page after all that", st.get("/hello/again"), "hello again")
	st.awaitParked(0)
}

// sendLate sends a part of a body to a handler that leaves no time for it.
func sendLate(st *site) {
	c := st.s.dial(st)
	fmt.Fprintf(c, "POST /late HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\npart")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		st.s.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	st.s.note("late: %s", describe(resp, string(body)))
	st.s.want("a deadline", string(body), "set: <nil>, timeout true")
	rest, err := io.ReadAll(r)
	st.s.expect(`"" <nil>`, "%q %v", rest, err)
}

// watchStream receives the first event while the handler waits to send the second.
func watchStream(st *site, l *low) {
	req, _ := http.NewRequestWithContext(st.s.context(), "GET", st.url+"/stream", nil)
	resp, err := st.client.Do(req)
	if err != nil {
		st.s.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for _, want := range []string{"data: one\n", "data: two\n"} {
		line, err := lines.ReadString('\n')
		st.s.expect(want+"<nil>", "%s%v", line, err)
		l.resume <- struct{}{}
		lines.ReadString('\n')
	}
	rest, err := io.ReadAll(lines)
	st.s.expect(` <nil>`, "%s %v", rest, err)
	st.s.note("stream: %s", describe(resp, ""))
}

// goAway disconnects from a handler that has not answered.
func goAway(st *site, l *low) {
	ctx, cancel := context.WithCancel(st.s.context())
	left := make(chan error, 1)
	go func() {
		req, _ := http.NewRequestWithContext(ctx, "GET", st.url+"/leave", nil)
		resp, err := st.client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		left <- err
	}()
	testnet.Receive(st.s, "the handler beginning to wait", l.waiting)
	cancel()
	st.s.expect("true", "%t", errors.Is(testnet.Receive(st.s, "the client giving up", left), context.Canceled))
	st.s.expect("context canceled", "%v", testnet.Receive(st.s, "the handler noticing", l.gone))
}

// talkRaw makes the handler take over a parked connection. The first line comes in the same packet
// as the request.
func talkRaw(st *site) {
	c := st.s.dial(st)
	r := bufio.NewReader(c)
	if st.adapter != nil {
		testnet.Eventually(st.s, "the connection waiting", func() bool { return st.adapter.Stats().Waiting == 1 })
	}
	fmt.Fprintf(c, "GET /hello/raw HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		st.s.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	st.s.note("raw: %s", describe(resp, string(body)))
	st.awaitParked(1)
	fmt.Fprintf(c, "GET /raw HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\nearly\n")
	if resp, err = http.ReadResponse(r, nil); err != nil {
		st.s.Fatal(err)
	}
	st.s.note("raw: %s", describe(resp, ""))
	line, err := r.ReadString('\n')
	st.s.expect("you said early\n<nil>", "%s%v", line, err)
	fmt.Fprintf(c, "later\n")
	line, err = r.ReadString('\n')
	st.s.expect("you said later\n<nil>", "%s%v", line, err)
	c.CloseWrite()
	rest, err := io.ReadAll(r)
	st.s.expect("end: EOF\n<nil>", "%s%v", rest, err)
}
