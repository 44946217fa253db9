// Package http1 is HTTP/1.1 without input, output or time: bytes to an *http.Request, and the calls
// of an http.ResponseWriter to bytes. The adapter's fast path reads, writes and waits around it.
//
//	bytes ──► Head.Scan ──► Head.Request ──► handler ──► Response ──► bytes
//	              │ a verdict other than Plain
//	              ▼
//	          net/http
//
// # Requests
//
// [Head.Scan] takes a strict subset of the requests that net/http takes: a whole header of HTTP/1.1
// whose lines end in CRLF, a path as its target, one plain Host, Content-Length as the only framing,
// no option of Connection except keep-alive or close. [Verdict] lists the reasons to decline a
// request. [Head.Request] makes the request of a header that was taken.
//
// Two rules follow:
//
//   - A request that is taken is, field by field, the *http.Request that a handler on net/http gets
//     for the same bytes, and its header ends at the same byte.
//   - Nothing is refused here. Bytes outside of the subset belong to net/http, which answers them, with
//     400, 417, 431, 501 or 505 if need be. So net/http remains the only judge of a request that is
//     odd, and two readers of the same bytes can't disagree about their end, which is how requests are
//     smuggled (RFC 9112, section 11.2).
//
// Settings that make net/http take more (GODEBUG=httplaxcontentlength=1) change nothing here. Of those
// that make it take less, the size of a header is [Head.Scan]'s limit, and the number of fields is
// Head.Fields.
//
// # Answers
//
// A [Response] sends the bytes that net/http sends for the same calls of a handler, Date aside. The
// differences:
//
//   - The request's Method, Close and ContentLength are read before the handler runs. A handler that
//     changes them in place changes nothing about the answer. net/http looks at Method and
//     ContentLength later, at different times in different versions of Go, and may give an answer
//     without a body to a GET, or with one to a HEAD.
//   - A body that ReadFrom copies ends at the declared length, as on Go 1.27. Go 1.26 sends all of it.
//   - Write after the handler has returned is an error and reaches nothing. net/http promises nothing
//     about it.
//
// # Memory
//
// Handlers may keep a request, its parts, and the ResponseWriter for as long as they like, so these are
// allocated for each request. They lie in few pieces, but programs keep single parts, a Host or a token,
// of very many requests. So a part holds at most 2 KiB beyond itself, however long the header is: the
// parts of a short header share one allocation, and those of a long one lie in several (see cutter).
// With net/http each field is an allocation, and the parts of the first line, long or not, hold one
// another. Buffers that no handler can reach come from pools. A Response has some between the first
// Write and the next Flush or the end only, so one that waits costs its own size.
//
// # Proof
//
// The tests run net/http beside this package, on the Go that they are built with:
//
//   - FuzzSameRequest and FuzzSameFields compare requests with those that a handler on a real server
//     gets. Their seeds are the attacks of the literature; TestSameBytes puts each byte at each kind of
//     place.
//   - TestSameAnswer and FuzzSameAnswer run handlers made of random steps both ways and compare the
//     bytes, what each call returns, and the error log with the place that it names.
package http1
