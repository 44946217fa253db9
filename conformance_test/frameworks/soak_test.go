package frameworks

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// TestSoak runs many clients on one connection each. They pause about as long as the time to park,
// so that requests arrive before, after and at the very moment a connection is parked. No request
// may fail, and no client may get another client's answer.
func TestSoak(t *testing.T) {
	clients, lasting := 1000, 10*time.Second
	if testing.Short() {
		clients, lasting = 100, time.Second
	}
	const park = 20 * time.Millisecond
	gin.SetMode(gin.ReleaseMode)
	app := gin.New()
	app.GET("/page/:n", func(c *gin.Context) { c.String(http.StatusOK, "page %s", c.Param("n")) })
	app.POST("/echo", func(c *gin.Context) {
		body, err := io.ReadAll(c.Request.Body)
		if err != nil {
			c.AbortWithError(http.StatusBadRequest, err)
			return
		}
		c.Data(http.StatusOK, "text/plain", body)
	})
	way{"", percore.Listen, func(srv *http.Server) testnet.WebServer {
		return httpadapter.Wrap(srv)
	}}.run(t, func(s *stage) {
		st := s.start(&http.Server{Handler: app}, setup{})
		end := time.Now().Add(lasting)
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				if err := soak(st, uint64(i), park, end); err != nil {
					s.Errorf("client %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		if st.adapter != nil {
			if got := st.adapter.HTTP1Stats(); got.Requests == 0 {
				s.Errorf("got %+v, want requests", got)
			}
		}
	})
}

// soak makes requests on a connection until end.
func soak(st *site, seed uint64, park time.Duration, end time.Time) error {
	rng := rand.New(rand.NewPCG(seed, 1))
	c, err := net.Dial("tcp", st.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	r := bufio.NewReader(c)
	for n := 0; time.Now().Before(end); n++ {
		want := fmt.Sprintf("page %d-%d", seed, n)
		request := fmt.Sprintf("GET /page/%d-%d HTTP/1.1\r\nHost: x\r\n\r\n", seed, n)
		if n%2 == 1 {
			want = strings.Repeat(want, 1+rng.IntN(1000))
			request = fmt.Sprintf("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(want), want)
		}
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		// Sometimes send it in two pieces, the second while the adapter looks at the first.
		cut := len(request)
		if rng.IntN(4) == 0 {
			cut = rng.IntN(cut)
		}
		for _, piece := range []string{request[:cut], request[cut:]} {
			if _, err := io.WriteString(c, piece); err != nil {
				return fmt.Errorf("request %d: %w", n, err)
			}
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return fmt.Errorf("request %d: %w", n, err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || string(got) != want {
			return fmt.Errorf("request %d: got %s, %.50q, %v, want %.50q", n, resp.Status, got, err, want)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(2 * park))))
	}
	return nil
}
