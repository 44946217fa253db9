package frameworks

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

func init() {
	platformChildren = append(platformChildren, testnet.WithChild("browser", runBrowserSite))
}

//go:embed testdata/browser.html
var browserPage []byte

// browserFlags is the environment variable with more flags for Chromium, such as --log-net-log=FILE,
// which shows every frame.
const browserFlags = "PERCORE_TEST_CHROMIUM_FLAGS"

// browserSite is what the page of testdata/browser.html loads.
type browserSite struct {
	mux      http.ServeMux
	download []byte
	report   chan []byte
}

func newBrowserSite() *browserSite {
	s := &browserSite{download: bytes.Repeat([]byte("0123456789abcde\n"), 500_000), report: make(chan []byte, 1)}
	var dot bytes.Buffer
	_ = png.Encode(&dot, image.NewGray(image.Rect(0, 0, 1, 1)))
	serve := func(path string, h http.HandlerFunc) { s.mux.HandleFunc(path, h) }
	serve("/{$}", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(browserPage) })
	serve("/image", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(dot.Bytes())
	})
	serve("/text", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "text ", r.URL.RawQuery) })
	serve("/download", func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(s.download) })
	serve("POST /upload", func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, bodySum(b))
	})
	serve("/slow", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		if http.NewResponseController(w).Flush() == nil {
			<-r.Context().Done()
		}
	})
	serve("/unread", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	serve("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := 0; r.Context().Err() == nil; i++ {
			fmt.Fprintf(w, "data: %d\n\n", i)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(10 * time.Millisecond):
			case <-r.Context().Done():
			}
		}
	})
	serve("/socket", echoSocket)
	serve("POST /report", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		select {
		case s.report <- b:
		default:
		}
	})
	return s
}

// bodySum is the function sum of the page.
func bodySum(b []byte) string {
	sum := 0
	for _, c := range b {
		sum += int(c)
	}
	return fmt.Sprint(len(b), sum%65536)
}

// runBrowserSite runs the site in its own process. It prints the page's report in one line, and the
// metrics of HTTP/2. It exits at the end of its standard input.
func runBrowserSite() {
	site := newBrowserSite()
	stop, err := serveChild(&site.mux)
	if err != nil {
		fmt.Println(err)
		return
	}
	ended := make(chan bool)
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(ended) }()
	select {
	case b := <-site.report:
		var line bytes.Buffer
		_ = json.Compact(&line, b)
		fmt.Println(line.String())
		fmt.Println(http2Metrics())
	case <-ended:
	}
	<-ended
	stop()
}

// TestChromium: a page in a real browser loads, uploads, cancels and talks, over HTTP/2, and no limit
// against attacks is hit.
func TestChromium(t *testing.T) {
	exe, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs Chromium: install the package chromium (Debian), and put it into PATH")
	}
	if testing.Short() || race.Enabled {
		t.Skip("takes twenty seconds, most of them Chromium's: run it without -short and -race")
	}
	servers := []string{"percore"}
	if os.Getenv("PERCORE_TEST_FULL") != "" {
		servers = []string{"net", "percore"} // the page's expectations hold on net/http's server, too
	}
	for _, extended := range []bool{false, true} {
		for _, on := range servers {
			t.Run(fmt.Sprintf("%s,extended=%t", on, extended), func(t *testing.T) {
				report, metrics := browse(t, exe, on, extended)
				proto := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[extended]
				for what, want := range map[string]string{
					"images": "200", "texts": "200", "afterwards": "50", "download": bodySum(newBrowserSite().download), "upload": "true",
					"cancelled at once": "1000", "cancelled in waves": "1000", "cancelled one by one": "300", "cancelled uploads": "30",
					"events": "0,1,2", "socket": proto + ",1,70000,1200000 1000",
				} {
					if report[what] != want {
						t.Errorf("%s: got %q, want %q", what, report[what], want)
					}
				}
				t.Log(report["settled"], metrics)
				if got := endedByServer(metrics); got != 0 {
					t.Errorf("the server ended %v connections because of a breach or a limit", got)
				}
			})
		}
	}
}

// browse runs Chromium with the page, and returns the page's report and the server's metrics.
func browse(t *testing.T, exe, on string, extended bool) (report map[string]string, metrics string) {
	identity, _ := pemIdentity(t)
	site, lines, address := startServer(t, "browser", on, identity, extended)
	cmd := exec.Command(exe, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--ignore-certificate-errors", "--remote-debugging-port=0", "--user-data-dir="+t.TempDir())
	cmd.Args = append(cmd.Args, strings.Fields(os.Getenv(browserFlags))...)
	cmd.Args = append(cmd.Args, "https://"+address+"/?loads=5")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var log testnet.Log
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		_ = cmd.Wait()
	})
	defer stop()
	type outcome struct {
		report, metrics string
		err             error
	}
	outcomes := make(chan outcome, 1)
	go func() {
		var o outcome
		if o.report, o.err = lines.ReadString('\n'); o.err == nil {
			o.metrics, o.err = lines.ReadString('\n')
		}
		outcomes <- o
	}()
	select {
	case o := <-outcomes:
		if o.err == nil {
			o.err = json.Unmarshal([]byte(o.report), &report)
		}
		if o.err != nil {
			t.Fatalf("the page's report %q: %v", o.report, o.err)
		}
		metrics = strings.TrimSpace(o.metrics)
	case <-time.After(4 * testnet.HangTimeout):
		stop()
		t.Fatalf("no report of the page; Chromium said\n%s", log.String())
	}
	stop()
	if err := site.Wait(); err != nil {
		t.Error(err)
	}
	return report, metrics
}
