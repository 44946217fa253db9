package h2

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestArguments calls everything with nil and zero values.
func TestArguments(t *testing.T) {
	streams, done := make(chan *Stream), make(chan struct{})
	f := serve(t, HandlerFunc(func(s *Stream, r *Request) {
		streams <- s
		<-done
	}), Config{})
	defer close(done)
	begin := func() *Stream { // on a connection of its own
		client := f.client()
		go func() { _, _ = client.Get(f.url("/")) }()
		return testnet.Receive(t, "a stream", streams)
	}
	s, ending := begin(), begin()
	c := s.Conn()
	h := HandlerFunc(func(*Stream, *Request) {})
	testnet.CheckArguments(t, map[string]testnet.Call{
		"FieldOfKey": {Func: FieldOfKey},
		"MakeField":  {Func: MakeField},
		"NewClient":  {Func: func(c ClientConfig) *Client { return NewClient(c) }},
		"New":        {Func: func(h Handler, c Config) *Server { return New(h, c) }},
		"Refuse":     {Func: Refuse},

		"Conn.Abort":         {Func: ending.Conn().Abort},
		"Conn.AfterFunc":     {Func: c.AfterFunc},
		"Conn.Open":          {Func: c.Open, Nils: "ctx"},
		"Conn.SetPingAfter":  {Func: c.SetPingAfter},
		"HandlerFunc.Accept": {Func: h.Accept, Nils: "_"},

		"Client.Attach": {Func: NewClient(ClientConfig{}).Attach, Nils: "user"},
		"Client.Drain":  {Func: NewClient(ClientConfig{}).Drain},

		"Server.Attach":   {Func: f.server.Attach, Nils: "user"},
		"Server.Drain":    {Func: f.server.Drain},
		"Server.Serve":    {Func: f.server.Serve},
		"Server.Shutdown": {Func: f.server.Shutdown},
		"Stats.Add":       {Func: new(Stats).Add},

		"Stream.AwaitEnd":          {Func: s.AwaitEnd},
		"Stream.Move":              {Func: s.Move},
		"Stream.OnInterim":         {Func: s.OnInterim, Nils: "f"},
		"Stream.Read":              {Func: s.Read},
		"Stream.ReadFull":          {Func: s.ReadFull},
		"Stream.Reset":             {Func: ending.Reset},
		"Stream.Send":              {Func: s.Send},
		"Stream.SetAnswerDeadline": {Func: s.SetAnswerDeadline},
		"Stream.SetReadDeadline":   {Func: s.SetReadDeadline},
		"Stream.SetWriteDeadline":  {Func: s.SetWriteDeadline},
		"Stream.Write":             {Func: s.Write},
	})
	testnet.CheckNegatives(t, func(c Config) error {
		New(h, c)
		return nil
	}, "DecoderTableBytes EncoderTableBytes IdleTimeout WriteTimeout")
	testnet.CheckNegatives(t, func(c ClientConfig) error {
		NewClient(c)
		return nil
	}, "DecoderTableBytes EncoderTableBytes IdleTimeout WriteTimeout")
}
