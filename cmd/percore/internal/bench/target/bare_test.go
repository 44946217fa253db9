package target

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestBare: a server without HTTP sends what net/http's sends, also if a request comes in pieces.
func TestBare(t *testing.T) {
	want := bareAnswers(t, Engine{Name: EngineNet})
	for name, engine := range map[string]Engine{
		"net+bare":        {Name: EngineNet, Bare: true},
		"percore+bare":    {Name: EnginePercore, Bare: true},
		"percore+reactor": {Name: EnginePercore, Reactor: true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := bareAnswers(t, engine); !reflect.DeepEqual(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// bareAnswers returns what two requests on one connection get, without the time.
func bareAnswers(t *testing.T, engine Engine) (answers []string) {
	t.Helper()
	_, addr := serveEngine(t, Spec{App: AppHTTP, Engine: engine})
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	r := bufio.NewReader(c)
	for _, rest := range []string{"Host: h\r\n\r\n", "Host: other\r\n\r\n"} {
		io.WriteString(c, "GET / HTTP/1.1\r\n")
		io.WriteString(c, rest)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Header.Get("Date") == "" {
			t.Error("an answer has no date")
		}
		resp.Header.Del("Date")
		body, err := io.ReadAll(resp.Body)
		answers = append(answers, fmt.Sprint(resp.Status, resp.Header, string(body), err))
	}
	return answers
}
