//go:build go1.27

package http1

import "net/http"

// This file has the rules of net/http's server that Go 1.27 has changed.

const (
	// tooLargeInHeader says whether a body that is too large changes the handler's header, as in net/http
	// of Go 1.26. Since Go 1.27 only the header that is sent says that the connection will be closed.
	tooLargeInHeader = false

	// expectDenies says whether the body of a request with Expect is given up when the answer begins before
	// the body was asked for: the client will not send it.
	expectDenies = true

	// connectCloses says whether the connection ends after CONNECT, and a 2xx to that has no length.
	connectCloses = true

	// closingIsSilent says whether an answer that ends the connection without saying so, as HTTP/1.0's
	// do, drops "keep-alive", which it was about to say.
	closingIsSilent = true

	// CutOffIsEnd says whether net/http, once it has seen that the client cut a body off, takes the body
	// for read to its end: a Read after that finds io.EOF, and the connection becomes idle before it is
	// closed. Since Go 1.27 it takes it for closed too early.
	CutOffIsEnd = false

	// EndIsRead says whether a connection whose client has sent Expect goes on only if the handler has
	// read the end of the body itself. Since Go 1.27 it is enough that Close has.
	EndIsRead = false

	// FieldsMax is how many lines the fields of a header may have by default, and how many trailers a
	// header may announce.
	FieldsMax = http.DefaultMaxHeaderValueCount
)
