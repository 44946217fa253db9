//go:build go1.27

package http1

// tooLargeInHeader says whether a body that is too large changes the handler's header, as in
// net/http of Go 1.26. Since Go 1.27 only the header that is sent says that the connection will be
// closed.
const tooLargeInHeader = false
