package control

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

// start runs Serve on one end of a pair of pipes and returns the other end.
func start(t *testing.T, handle Handler) *Client {
	t.Helper()
	reqR, reqW := io.Pipe()
	repR, repW := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- Serve(reqR, repW, handle)
		repW.Close()
	}()
	t.Cleanup(func() {
		reqW.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve at the end of its input: %v, want nil", err)
		}
	})
	return NewClient(repR, reqW)
}

type pair struct{ A, B int }

func TestCall(t *testing.T) {
	c := start(t, func(op string, body json.RawMessage) (any, error) {
		if op == "fail" {
			return nil, errors.New("no such luck")
		}
		var p pair
		err := json.Unmarshal(body, &p)
		return p.A + p.B, err
	})
	for i := range 3 {
		var sum int
		if err := c.Call("add", pair{i, 2}, &sum); err != nil || sum != i+2 {
			t.Fatalf("add %d and 2: %d, %v", i, sum, err)
		}
		err := c.Call("fail", nil, nil)
		var remote *RemoteError
		if !errors.As(err, &remote) || err.Error() != "no such luck" {
			t.Fatalf("fail: error %v, want the child's own", err)
		}
	}
}

func TestCallLostChild(t *testing.T) {
	for name, out := range map[string]string{"end": "", "garbage": "Segmentation fault\n"} {
		err := NewClient(strings.NewReader(out), io.Discard).Call("x", nil, nil)
		var remote *RemoteError
		if err == nil || errors.As(err, &remote) {
			t.Errorf("%s: error %v, want one that is no RemoteError", name, err)
		}
	}
}
