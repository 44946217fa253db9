//go:build go1.27

package http1

import "net/http"

// This file has the rules of net/http's server that Go 1.27 has changed.

const (
	// tooLargeInHeader says whether a body that is too large changes the handler's header, as in
	// net/http of Go 1.26. Since Go 1.27 only the header that is sent says that the connection will be
	// closed.
	tooLargeInHeader = false

	// expectDenies says whether the body of a request with Expect is given up when the answer begins before
	// the body was asked for: the client will not send it.
	expectDenies = true

	// connectCloses says whether the connection ends after CONNECT, and a 2xx to that has no length.
	connectCloses = true

	// closingIsSilent says whether an answer that ends the connection without saying so, as HTTP/1.0's
	// do, drops "keep-alive", which it was about to say.
	closingIsSilent = true

	// FieldsMax is how many lines the fields of a header may have by default, and how many trailers a
	// header may announce.
	FieldsMax = http.DefaultMaxHeaderValueCount
)
