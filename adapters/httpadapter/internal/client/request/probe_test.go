package request

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// slowBody is a body whose first Read returns after a while.
type slowBody struct {
	after time.Duration
	text  string
	exits bool // Read ends its goroutine
}

func (b *slowBody) Read(p []byte) (int, error) {
	time.Sleep(b.after)
	if b.after = 0; b.exits {
		runtime.Goexit()
	}
	if b.text == "" {
		return 0, io.EOF
	}
	n := copy(p, b.text)
	b.text = b.text[n:]
	return n, nil
}

func (b *slowBody) Close() error { return nil }

// TestProbe: a body is waited for as long as net/http waits, or the request's context, and is read as it
// is.
func TestProbe(t *testing.T) {
	const cancelled = 50 * time.Millisecond // after which the context ends
	for name, test := range map[string]struct {
		body   slowBody
		ends   bool // the context
		length int64
		took   time.Duration
		want   string
	}{
		"empty":               {slowBody{}, false, 0, 0, `"" <nil>`},
		"soon empty":          {slowBody{after: probeTime - 1}, false, 0, probeTime - 1, `"" <nil>`},
		"empty later":         {slowBody{after: time.Second}, false, -1, probeTime, `"" <nil>`},
		"bytes":               {slowBody{text: "body"}, false, -1, 0, `"body" <nil>`},
		"bytes soon":          {slowBody{after: probeTime - 1, text: "body"}, false, -1, probeTime - 1, `"body" <nil>`},
		"bytes later":         {slowBody{after: time.Second, text: "body"}, false, -1, probeTime, `"body" <nil>`},
		"the end of the call": {slowBody{after: time.Second}, true, -1, cancelled, `"" <nil>`},
		"a goroutine's end":   {slowBody{exits: true}, false, -1, 0, `"" net/http: reading the request's body has ended the goroutine`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Request{Ctx: t.Context(), Body: &test.body, Probes: true, Length: -1}
				if test.ends {
					ctx, cancel := context.WithTimeout(r.Ctx, cancelled)
					defer cancel()
					r.Ctx = ctx
				}
				begun := time.Now()
				r.Probe()
				r.Probe() // as when it is sent again
				if took := time.Since(begun); took != test.took || r.Length != test.length {
					t.Errorf("got the length %d after %v, want %d after %v", r.Length, took, test.length, test.took)
				}
				p, err := io.ReadAll(r.Body)
				if got := fmt.Sprintf("%q %v", p, err); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
			})
		})
	}
}
