package frameworks

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// A program is a client in the machine's PATH.
type program struct {
	name    string
	install string // the package of Debian
	runs    []programRun
}

// A programRun is a call of a program with arguments, in which URL, FILE and CA stand for the server,
// a file of a megabyte and the file with the server's certificate. Its output must have the lines, or
// parts of lines, in want.
type programRun struct {
	args string
	want []string
	fail bool // the program must report an error
	tls  bool // only over TLS: curl 7.88 can't do that in clear, with any server
}

const programFileBytes = 1 << 20

var programs = []program{
	{"curl", "curl", []programRun{
		{args: "--http2-prior-knowledge URL/hello -w \n%{http_version}|%{http_code}", want: []string{"hello", "2|200"}},
		// Upgrade is not spoken, as by net/http: the answer comes over HTTP/1.1.
		{args: "--http2 URL/hello -w \n%{http_version}|%{http_code}", want: []string{"hello", "VERSION|200"}},
		{args: "KNOW -T FILE -H Expect:100-continue URL/count -w |%{http_code}", want: []string{"1048576 0|200"}},
		{args: "KNOW -T FILE -H Expect: URL/count -w |%{http_code}", want: []string{"1048576 0|200"}},
		{args: "KNOW -T - URL/count -w |%{http_code}", want: []string{"0 0|200"}},
		{args: "KNOW -F a=b -F file=@FILE URL/count -w |%{http_code}", want: []string{"|200"}},
		{args: "KNOW -d abc URL/refuse -w |%{http_code}", want: []string{"no", "|413"}},
		{args: "KNOW URL/download -o /dev/null -w %{size_download}|%{http_code}", want: []string{"8388608|200"}},
		{args: "KNOW -r 5-9 URL/hello -w |%{http_code}", want: []string{"hello|200"}},
		{args: "KNOW -I URL/hello", want: []string{"HTTP/2 200", "content-length: 5", "content-type: text/plain"}},
		{tls: true, args: "KNOW --parallel --parallel-max 50 -o /dev/null -w %{http_code}\\n URL/count?[1-200]", want: []string{strings.Repeat("200\n", 200)}},
		{tls: true, args: "KNOW --parallel --parallel-max 10 -o /dev/null -w %{size_download}\\n URL/download?[1-10]", want: []string{strings.Repeat("8388608\n", 10)}},
		{args: "KNOW --max-time 0.2 URL/wait", fail: true},
		{args: "KNOW URL/abort", fail: true},
	}},
	{"nghttp", "nghttp2-client", []programRun{
		{args: "-nvy URL/hello", want: []string{":status: 200", "content-length: 5", "END_STREAM"}},
		{args: "-y -m 50 URL/hello", want: []string{strings.Repeat("hello", 50)}},
		{args: "-y -m 20 --header-table-size=0 URL/hello", want: []string{strings.Repeat("hello", 20)}},
		{args: "-y -m 20 --header-table-size=1048576 --encoder-header-table-size=1048576 URL/hello", want: []string{strings.Repeat("hello", 20)}},
		{args: "-y -m 20 --header-table-size=64 --encoder-header-table-size=0 URL/hello", want: []string{strings.Repeat("hello", 20)}},
		{args: "-yns -w 10 -W 16 URL/download", want: []string{" 200   8M /download"}},
		{args: "-yns -w 30 -W 30 URL/download", want: []string{" 200   8M /download"}},
		{args: "-y -d FILE URL/count", want: []string{"1048576"}},
		{args: "-y -d FILE --expect-continue URL/count", want: []string{"1048576"}},
		{args: "-y -d FILE --no-content-length --trailer=x-a:b -b 255 URL/count", want: []string{"1048576 1b"}},
		{args: "-y --continuation -H x-long:LONG URL/fields", want: []string{"X-Long 30000"}},
		{args: "-y -b 100 -m 10 --no-dep URL/hello", want: []string{strings.Repeat("hello", 10)}},
	}},
	{"h2load", "nghttp2-client", []programRun{
		{args: "-n 1000 -c 4 -m 20 URL/hello", want: []string{"1000 succeeded, 0 failed, 0 errored, 0 timeout"}},
		{args: "-n 300 -c 4 -m 20 -w16 -W16 URL/hello", want: []string{"300 succeeded, 0 failed, 0 errored, 0 timeout"}},
		{args: "-n 20 -c 2 -m 10 -w10 -W16 URL/download", want: []string{"20 succeeded, 0 failed, 0 errored, 0 timeout"}},
		{args: "-n 20 -c 2 -m 10 -w16 -W16 URL/download", want: []string{"20 succeeded, 0 failed, 0 errored, 0 timeout"}},
		{args: "-n 40 -c 2 -m 10 -d FILE URL/count", want: []string{"40 succeeded, 0 failed, 0 errored, 0 timeout"}},
		{args: "-n 300 -c 2 -m 250 --header-table-size=0 --encoder-header-table-size=0 URL/hello", want: []string{"300 succeeded, 0 failed, 0 errored, 0 timeout"}},
	}},
}

// programHandler is what the programs talk to.
func programHandler() http.Handler {
	download := make([]byte, 8<<20)
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello") })
	mux.HandleFunc("/count", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, n, " ", len(r.Trailer), r.Trailer.Get("X-A"))
	})
	mux.HandleFunc("/refuse", func(w http.ResponseWriter, r *http.Request) {
		// curl 7.88 takes the reset behind an early answer (NO_ERROR) for an error, with any server.
		_, _ = io.Copy(io.Discard, r.Body)
		http.Error(w, "no", http.StatusRequestEntityTooLarge)
	})
	mux.HandleFunc("/download", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(download) })
	mux.HandleFunc("/wait", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/fields", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "X-Long ", len(r.Header.Get("X-Long"))) })
	mux.HandleFunc("/abort", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "beginning")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	return mux
}

// TestPrograms: clients that are not written in Go, where they are installed. No limit against attacks
// is hit.
func TestPrograms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, make([]byte, programFileBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			exe, err := exec.LookPath(p.name)
			if err != nil {
				t.Skipf("needs %s in PATH: install the package %s (Debian)", p.name, p.install)
			}
			for _, secure := range []bool{false, true} {
				if os.Getenv("PERCORE_TEST_FULL") != "" {
					t.Run(fmt.Sprintf("net,TLS=%t", secure), func(t *testing.T) {
						startForPrograms(t, ways[0], secure).runAll(t, exe, file, p.runs) // validates the list
					})
				}
				t.Run(fmt.Sprintf("TLS=%t", secure), func(t *testing.T) {
					testnet.NoLeaks(t)
					before := endedByServer(http2Metrics())
					startForPrograms(t, http2Ways[1], secure).runAll(t, exe, file, p.runs)
					if got := endedByServer(http2Metrics()) - before; got != 0 {
						t.Errorf("the server ended %v connections because of a breach or a limit: %s", got, http2Metrics())
					}
				})
			}
		})
	}
}

// programSite is a server for programs.
type programSite struct{ url, ca string }

func startForPrograms(t *testing.T, w way, secure bool) programSite {
	srv := &http.Server{Handler: programHandler(), Protocols: allProtocols()}
	server, ln := w.wrap(srv), testnet.Listen(t, w.listen, testnet.TCP4)
	site := programSite{url: "http://" + ln.Addr().String()}
	if secure {
		config, _ := testnet.TLS(t)
		srv.TLSConfig = config
		site.url = "https://" + ln.Addr().String()
		site.ca = filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(site.ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: config.Certificates[0].Certificate[0]}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	testnet.ServeWeb(t, server, ln, secure)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil { // no handler is left
			t.Errorf("Shutdown: %v", err)
		}
	})
	return site
}

func (s programSite) runAll(t *testing.T, exe, file string, runs []programRun) {
	for _, run := range runs {
		if s.ca != "" || !run.tls {
			s.run(t, exe, file, run)
		}
	}
}

// run calls a program.
func (s programSite) run(t *testing.T, exe, file string, run programRun) {
	t.Helper()
	know, version := "--http2-prior-knowledge", "1.1"
	if s.ca != "" {
		know, version = "--http2", "2"
	}
	var args []string
	if filepath.Base(exe) == "curl" {
		args = append(args, "-sS")
		if s.ca != "" {
			args = append(args, "--cacert", s.ca)
		}
	}
	for _, arg := range strings.Split(run.args, " ") {
		arg = strings.NewReplacer("URL", s.url, "FILE", file, "KNOW", know, "LONG", strings.Repeat("x", 30_000)).Replace(arg)
		args = append(args, arg)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*testnet.HangTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if (err != nil) != run.fail {
		t.Errorf("%s: got %v, want an error: %t\n%.2000s", run.args, err, run.fail, out)
	}
	for _, want := range run.want {
		want = strings.ReplaceAll(want, "VERSION", version)
		if !strings.Contains(string(out), want) {
			t.Errorf("%s: got the output\n%.2000s\nwant in it %q", run.args, out, want)
		}
	}
}
