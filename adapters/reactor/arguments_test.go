package reactor

import (
	"log/slog"
	"strings"
	"testing"
	"time"

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
		if err := l.Execute(func() { f(); close(done) }); err != nil {
			t.Fatal(err)
		}
		<-done
	}
	with := func(o Option) error {
		_, err := New(h, o)
		return err
	}
	testnet.CheckArguments(t, map[string]testnet.Call{
		"ErrorLog":           {Func: func(log *slog.Logger) error { return with(ErrorLog(log)) }},
		"IdleTimeout":        {Func: func(d time.Duration) error { return with(IdleTimeout(d)) }},
		"New":                {Func: func(h Handler, options ...Option) error { _, err := New(h, options...); return err }, Args: []any{h}, Says: "there is no handler"},
		"PerLoop":            {Func: func(make func(int) Handler) error { return with(PerLoop(make)) }},
		"ReadBufferMax":      {Func: func(n int) error { return with(ReadBufferMax(n)) }},
		"ReadIdleTimeout":    {Func: func(d time.Duration) error { return with(ReadIdleTimeout(d)) }},
		"ReadTimeout":        {Func: func(d time.Duration) error { return with(ReadTimeout(d)) }},
		"Serve":              {Func: Serve, Args: []any{&percore.Listener{}, h}, Says: "there is no handler|New was called with nil"},
		"SlowCallback":       {Func: func(d time.Duration) error { return with(SlowCallback(d)) }},
		"Workers":            {Func: func(n, waitingMax int) error { return with(Workers(n, waitingMax)) }},
		"WriteHardLimit":     {Func: func(n int) error { return with(WriteHardLimit(n)) }},
		"WriteHighWaterMark": {Func: func(n int) error { return with(WriteHighWaterMark(n)) }},
		"WriteIdleTimeout":   {Func: func(d time.Duration) error { return with(WriteIdleTimeout(d)) }},
		"WriteTimeout":       {Func: func(d time.Duration) error { return with(WriteTimeout(d)) }},

		"Conn.After":        {Func: c.After},
		"Conn.Go":           {Func: c.Go},
		"Conn.GoContext":    {Func: c.GoContext},
		"Conn.SetContext":   {Func: func(v any) { onLoop(func() { c.SetContext(v) }) }, Nils: "v"},
		"Conn.SetLinger":    {Func: func(sec int) error { return c.SetLinger(sec - 1) }}, // 0 would reset
		"Conn.SetNoDelay":   {Func: c.SetNoDelay},
		"Conn.SetTimeout":   {Func: c.SetTimeout},
		"Conn.Write":        {Func: c.Write},
		"Conn.WriteBuffers": {Func: c.WriteBuffers, Nils: "..."},
		"Conn.WriteShared":  {Func: c.WriteShared},

		"Loop.Execute": {Func: l.Execute},

		"Server.Attach":    {Func: s.Attach, Nils: "context"},
		"Server.Broadcast": {Func: s.Broadcast, Args: []any{[]byte("x")}, Nils: "missed"},
		"Server.Each":      {Func: s.Each},
		"Server.Serve":     {Func: s.Serve},
		"Server.Shutdown":  {Func: s.Shutdown},
	})
}

// TestNegativeOptions: each option whose number is negative is refused by its name.
func TestNegativeOptions(t *testing.T) {
	for name, o := range map[string]Option{
		"IdleTimeout":        IdleTimeout(-1),
		"ReadBufferMax":      ReadBufferMax(-1),
		"ReadIdleTimeout":    ReadIdleTimeout(-1),
		"ReadTimeout":        ReadTimeout(-1),
		"SlowCallback":       SlowCallback(-1),
		"Workers":            Workers(1, -1),
		"WriteHardLimit":     WriteHardLimit(-1),
		"WriteHighWaterMark": WriteHighWaterMark(-1),
		"WriteIdleTimeout":   WriteIdleTimeout(-1),
		"WriteTimeout":       WriteTimeout(-1),
	} {
		if _, err := New(&handler{}, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s with a negative number: got %v, want an error that names it", name, err)
		}
	}
}
