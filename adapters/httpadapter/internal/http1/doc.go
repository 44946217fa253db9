// Package http1 implements HTTP/1 without input or output, and needs the time for Date alone. It turns
// bytes into an *http.Request, and the calls of an http.ResponseWriter into bytes. The adapter reads,
// writes and waits around it.
//
//	bytes ──► Head.Scan ──► Head.Request ──► handler ──► Response ──► bytes
//	              │ a verdict other than Plain  ▲
//	              ▼                             │
//	          Beginning.Look ──► ReadRequest, Check ──► Refusal ──► bytes
//
// # Plain requests
//
// [Head.Scan] takes a strict subset of the requests that net/http takes. The header must be
// complete, HTTP/1.1 or 1.0, with lines that end in CRLF, a path as its target, and one plain Host. Its
// body has one plain length, or comes in chunks as all of its framing says. Options of Connection are
// keep-alive and close, and 100-continue is all that it may expect. [Verdict] lists the reasons to leave
// a request. [Head.Request] builds the request from a header that was taken.
//
// Two rules follow:
//
//   - A request that is taken equals, field by field, the *http.Request that a handler on net/http
//     gets for the same bytes, and its header ends at the same byte.
//   - Scan refuses nothing. Bytes outside the subset are odd, and [http.ReadRequest] judges them. So two
//     readers of the same bytes can't disagree about where they end, which is how requests are
//     smuggled (RFC 9112, section 11.2).
//
// Settings that make net/http accept more (GODEBUG=httplaxcontentlength=1) change nothing in Scan. Two
// settings make it accept less: [Head.Scan] takes the limit on the header's size, and Head.Fields
// is the number of fields to check.
//
// # Odd requests
//
// A [Beginning] looks at each line of a header as it comes, until the header is whole or wrong. Then
// [ReadRequest] reads it from memory, and [Check] applies what net/http's server checks besides.
// [Refusal] has the bytes with which net/http refuses a request, before it ends the connection.
// rules.go has these rules, and versions.go and versions_go126.go those that differ between versions
// of Go.
//
// # Answers
//
// A [Response] sends the bytes that net/http sends for the same calls of a handler, Date aside. The
// differences:
//
//   - The request's Method, Close and ContentLength are read before the handler runs. A handler that
//     changes them in place does not affect the answer. net/http looks at Method and
//     ContentLength later, at different times in different versions of Go, and may give an answer
//     without a body to a GET, or with one to a HEAD.
//   - A body that ReadFrom copies ends at the declared length, as on Go 1.27. Go 1.26 sends all of it.
//   - Write after the handler has returned fails and has no effect. net/http promises nothing about
//     it.
//
// # Memory
//
// Handlers may keep a request, its parts, and the ResponseWriter for as long as they like, so these
// are allocated for each request. There are few allocations, but programs keep single parts, such
// as a Host or a token, of very many requests. So a part holds at most 2 KiB beyond itself, however
// long the header is. The parts of a short header share one allocation, and a long header is spread
// over several (see cutter). With net/http each field is an allocation, and the parts of the first
// line, however long, keep one another alive. Buffers that no handler can reach come from pools. A
// Response holds buffers only between the first Write and the next Flush or the end, so a waiting
// one costs only its own size.
//
// # Proof
//
// The tests run net/http beside this package, with the Go version that builds them:
//
//   - FuzzSameRequest and FuzzSameFields compare requests with those that a handler on a real server
//     gets. Their seeds are the attacks of the literature; TestSameBytes puts each byte at each kind of
//     place.
//   - TestSameAnswer and FuzzSameAnswer run handlers made of random steps both ways and compare the
//     bytes, what each call returns, and the error log with the place that it names.
package http1
