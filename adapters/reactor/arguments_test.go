package reactor

import (
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	opened := make(chan *Conn, 1)
	h := &handler{open: func(c *Conn) { opened <- c }}
	s, dial := serve(t, h)
	defer dial().Close()
	c := <-opened
	l := c.Loop()
	onLoop := func(f func()) {
		done := make(chan struct{})
		if err := l.Submit(func() { f(); close(done) }); err != nil {
			t.Fatal(err)
		}
		<-done
	}
	testnet.CheckArguments(t, map[string]testnet.Call{
		"IdleTimeout":      {Func: IdleTimeout},
		"New":              {Func: New, Args: []any{h, Config{}}, Says: "there is no handler"},
		"ReadIdleTimeout":  {Func: ReadIdleTimeout},
		"ReadTimeout":      {Func: ReadTimeout},
		"Serve":            {Func: Serve, Args: []any{&percore.Listener{}, h, Config{}}, Says: "there is no handler"},
		"WriteIdleTimeout": {Func: WriteIdleTimeout},
		"WriteTimeout":     {Func: WriteTimeout},

		"Conn.AfterFunc":    {Func: c.AfterFunc},
		"Conn.Go":           {Func: c.Go},
		"Conn.GoContext":    {Func: c.GoContext},
		"Conn.SetUser":      {Func: func(v any) { onLoop(func() { c.SetUser(v) }) }, Nils: "v"},
		"Conn.SetLinger":    {Func: func(sec int) error { return c.SetLinger(sec - 1) }}, // 0 would reset
		"Conn.SetNoDelay":   {Func: c.SetNoDelay},
		"Conn.SetTimeout":   {Func: c.SetTimeout},
		"Conn.Write":        {Func: c.Write},
		"Conn.WriteBuffers": {Func: c.WriteBuffers, Nils: "..."},
		"Conn.WriteShared":  {Func: c.WriteShared},

		"Loop.Submit": {Func: l.Submit},

		"Server.Attach":    {Func: s.Attach, Nils: "user"},
		"Server.Broadcast": {Func: s.Broadcast, Args: []any{[]byte("x")}, Nils: "missed"},
		"Server.Each":      {Func: s.Each},
		"Server.Serve":     {Func: s.Serve},
		"Server.Shutdown":  {Func: s.Shutdown},
	})
	testnet.CheckNegatives(t, func(c Config) error { _, err := New(h, c); return err }, "")
}
