package httpadapter

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/percore/percore/admission"
	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	s := Wrap(&http.Server{Addr: "127.0.0.1:no"})
	with := func(o Option) { Wrap(new(http.Server), o) }
	var stream *Answer
	hold(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), func(s *Answer) {
		stream = s
		s.Close()
	})
	testnet.CheckArguments(t, map[string]testnet.Call{
		"Detach":       {Func: Detach},
		"LimitWork":    {Func: func(l *admission.Limiter, exempt func(*http.Request) bool) { with(LimitWork(l, exempt)) }, Args: []any{admission.New(admission.Limits{Handlers: 1})}, Nils: "exempt"},
		"MaxAge":       {Func: func(age time.Duration, requests int) { with(MaxAge(age, requests)) }},
		"NewTransport": {Func: NewTransport, Nils: "base"},
		"Serve":        {Func: Serve, Args: []any{new(http.Server)}},
		"ServeTLS":     {Func: ServeTLS, Args: []any{new(http.Server)}, Says: "Serve was called with a nil"},
		"Wrap":         {Func: Wrap, Args: []any{new(http.Server)}},

		"Server.Drain":                {Func: s.Drain},
		"Server.HandOver":             {Func: s.HandOver},
		"Server.ListenAndServeTLS":    {Func: s.ListenAndServeTLS},
		"Server.RegisterOnDrain":      {Func: s.RegisterOnDrain},
		"Server.RegisterOnShutdown":   {Func: s.RegisterOnShutdown},
		"Server.Serve":                {Func: s.Serve},
		"Server.ServeTLS":             {Func: s.ServeTLS, Says: "Serve was called with a nil net.Listener"},
		"Server.SetKeepAlivesEnabled": {Func: s.SetKeepAlivesEnabled},
		"Server.Shutdown":             {Func: s.Shutdown},

		"Answer.Abort":            {Func: stream.Abort, Nils: "err"},
		"Answer.OnEnd":            {Func: stream.OnEnd, Nils: "f"},
		"Answer.OnMaxAge":         {Func: stream.OnMaxAge},
		"Answer.SetLimit":         {Func: stream.SetLimit},
		"Answer.SetWriteDeadline": {Func: stream.SetWriteDeadline},
		"Answer.Write":            {Func: stream.Write},
		"Answer.WriteHeader":      {Func: stream.WriteHeader},
	})
}

// TestNegativeAge: MaxAge refuses a negative limit instead of setting none.
func TestNegativeAge(t *testing.T) {
	for _, option := range []func() Option{
		func() Option { return MaxAge(-1, 0) },
		func() Option { return MaxAge(0, -1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("got no panic")
				}
			}()
			option()
		}()
	}
}
