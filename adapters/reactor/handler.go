package reactor

// Handler is the code of a protocol. Its methods run on the loop of their connection, one at a time
// for all connections of that loop. They must not block, or all other connections of the loop would
// wait. Use [Conn.Go] for work that takes long, and [Conn.Hijack] and a goroutine for code that
// blocks. A Handler may also be an [EndHandler] and a [WritableHandler].
//
// A method that panics ends only its own connection; the panic and its stack are logged.
type Handler interface {
	// Open is called first, once.
	Open(c *Conn)

	// Data is called with bytes that have come, at least one, in order. It returns how many of them, from
	// the beginning, it has used. It is called again at once with the rest, until it returns 0 or nothing
	// is left, so it may take all messages in p, or one per call. Unused bytes are kept, up to
	// ReadBufferMax, and come again with more.
	//
	// Between two calls the server checks how many written bytes wait: while there are more than
	// WriteHighWaterMark, Data isn't called. So if an answer may be much longer than its request, take
	// one message per call, or stop after some 64 KiB of answers: a peer may send thousands of requests
	// at once, and their answers together may be more than WriteHardLimit.
	//
	// If Data can't go on yet, because another connection has no room or an answer is missing, it should
	// call [Conn.Pause] and return what it has used.
	//
	// The loop owns p: Data may change it, and must not keep it.
	Data(c *Conn, p []byte) (used int)

	// Close is called last, once, when the connection is closed and no function of [Conn.Go] runs or
	// will run for it. err says why:
	//
	//	nil                    this side closed it: Conn.Close, Abort
	//	io.EOF                 the peer ended the stream, and everything written was sent
	//	io.ErrUnexpectedEOF    the same, with bytes left that Data hasn't used
	//	ErrServerClosed        the server was closed or shut down
	//	ErrReadBufferFull      Data used nothing of ReadBufferMax bytes
	//	ErrWriteBufferFull     a Write, WriteBuffers, WriteShared or Broadcast was refused
	//	*net.OpError           reading or writing failed, as on a net.Conn; or a timeout passed
	//	                       (os.ErrDeadlineExceeded)
	//	*PanicError            a method of the handler, or a function of Go or AfterFunc, panicked
	//
	// It isn't called after Hijack.
	Close(c *Conn, err error)
}

// EndHandler is a Handler that goes on when the peer has ended its stream but may still read: a
// half-closed connection. With any other Handler the connection is closed once everything written is
// sent.
type EndHandler interface {
	Handler

	// End is called once, after the last Data, which has left unused bytes. No more bytes come. The
	// connection stays open until Conn.Close or Abort is called.
	End(c *Conn, unused []byte)
}

// WritableHandler is a Handler that writes when there is room: a download or a proxy that goes on when
// the peer has taken enough, or a broker that drops messages to slow subscribers. Its connections stay
// open when [Conn.Write], [Conn.WriteBuffers] or [Conn.WriteShared] fails with [ErrWriteBufferFull].
// Nothing was taken then, and the caller decides whether to drop a whole message, keep it for
// Writable, or close the connection.
type WritableHandler interface {
	Handler

	// Writable is called when there is room again:
	//
	//   - once fewer than half of WriteHighWaterMark bytes wait, after more than that did
	//   - after a refused write, once none wait: then the next write is taken, whatever its length
	//
	// It is called once for everything written before, and may come when neither is true any more,
	// because others have written. If another goroutine's write was refused, Writable may be called
	// before that goroutine has seen the error; a lock around both helps.
	//
	// A connection whose peer has ended its stream, or that is shut down, isn't closed before that.
	Writable(c *Conn)
}
