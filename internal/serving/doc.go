// Package serving is the common base of percore's servers: it accepts, counts and ends connections and
// performs their handshakes, whatever is served on them. Packages h2, httpadapter and reactor use it.
//
// # How a connection ends
//
// Five things can happen to a connection. Each layer reports them to the layer above in its own way:
//
//	end         the peer has ended its stream (a FIN), and may still read
//	half-close  this side has ended its stream, and may still read
//	close       this side has closed the connection: the program, Shutdown, or another goroutine
//	abort       the peer has reset the connection, or this side drops bytes that it should have sent
//	timeout     a deadline has passed
//
// HTTP/1 in httpadapter, to a handler:
//
//	end         While it runs and has read the body: its context is cancelled, and CloseNotify fires. In
//	            the body: Read returns io.ErrUnexpectedEOF, once, then io.EOF. It may still write, and
//	            its answer is sent. Between requests the connection is closed, and net/http gets a
//	            header that was cut off.
//	half-close  Only the worker does it, behind the last answer, if the client may still be sending.
//	close       As end, and Writes fail with net.ErrClosed.
//	abort       As end. A Write that fails cancels the context, too. A handler that panics aborts: what is
//	            whole of the answer is sent.
//	timeout     Reading: as end, and a Read of the body returns os.ErrDeadlineExceeded. Writing: Write
//	            fails with it, the context is cancelled, and nothing may be sent any more.
//
// Package h2, to a StreamHandler:
//
//	end         All streams end: Cancelled gets a *ConnError of io.EOF, and so do Read, unless the body was
//	            whole, and Send. Unread bytes are dropped. The connection is closed at once: answers
//	            are not sent.
//	half-close  Of a stream: the body's io.EOF, or End of a Message. Of the connection: behind GOAWAY and
//	            the last stream, when all is sent. Later bytes are discarded for lingerTime.
//	close       As end, with net.ErrClosed.
//	abort       As end, with the error of the read or write. RST_STREAM ends one stream: Cancelled gets a
//	            *StreamError, and the connection goes on.
//	timeout     The connection has one deadline, an alarm, that no handler sees: a client too slow to
//	            begin, or to answer a PING, is closed; one that takes nothing gets a GOAWAY first. A
//	            stream's deadline makes its Read fail with os.ErrDeadlineExceeded, or resets it.
//
// A *tls.Conn above a percore.Conn, to its reader (in h2, httpadapter and reactor):
//
//	end         A close_notify, or a FIN between two records: Read returns io.EOF, and Write goes on. A
//	            FIN in a record: io.ErrUnexpectedEOF.
//	half-close  CloseWrite sends a close_notify and no FIN.
//	close       Close sends a close_notify, for up to 5 s, before it closes the socket. h2 closes the
//	            socket alone; httpadapter cuts the farewell off after 0.1 s where another client waits.
//	abort       As below TLS.
//	timeout     Reading: nothing is lost, the next Read goes on; so percore.ErrWouldWait can stand for
//	            "nothing there". Writing: the stream has a hole, and no Write succeeds any more.
//
// Package reactor, to a Handler:
//
//	end         Data gets what came before. An EndHandler's End is called, and the connection stays; any
//	            other Handler gets Close with io.EOF when all is sent, or with io.ErrUnexpectedEOF if it
//	            has left bytes unused.
//	half-close  Conn.CloseWrite: when all is sent. Data is called as before.
//	close       Conn.Close: when all is sent and the peer has ended, or after lingerTime. Close gets nil,
//	            or ErrServerClosed.
//	abort       By the peer: Close gets a *net.OpError. Conn.Abort: the socket takes what it can; if bytes
//	            are dropped the peer gets a reset.
//	timeout     As Abort: Close gets a *net.OpError of os.ErrDeadlineExceeded.
package serving
