// Package http1 implements HTTP/1 without input or output, and without a clock except for the Date
// field. It turns bytes into an *http.Request, and calls of an http.ResponseWriter into bytes. The
// adapter around it reads, writes and waits.
//
//	bytes ──► Head.Scan ──► Head.Request ──► handler ──► Response ──► bytes
//	              │ a verdict other than Plain  ▲
//	              ▼                             │
//	          Beginning.Look ──► ReadRequest, Check ──► Refusal ──► bytes
//
// # Plain requests
//
// [Head.Scan] takes a strict subset of the requests that net/http takes. The header must be
// complete, HTTP/1.1 or 1.0, with lines that end in CRLF, a path as its target, and one plain Host.
// The body must have one plain length, or come in chunks with nothing in the framing against it.
// Connection may only say keep-alive or close, and Expect only 100-continue. [Verdict] lists the
// reasons to leave a request. [Head.Request] builds the request from a header that was taken.
//
// Two rules follow:
//
//   - A request that is taken equals, field by field, the *http.Request that net/http passes to a
//     handler for the same bytes, and its header ends at the same byte.
//   - Scan refuses nothing. Bytes outside the subset are odd, and [http.ReadRequest] judges them. So
//     two readers of the same bytes can't disagree about where a request ends, which is how requests
//     are smuggled (RFC 9112, section 11.2).
//
// Settings that make net/http accept more (GODEBUG=httplaxcontentlength=1) don't affect Scan. Two
// settings make net/http accept less, and callers apply them: [Head.Scan] takes the limit on the
// header's size, and Head.Fields is the number of fields to check.
//
// # Odd requests
//
// A [Beginning] looks at each line of a header as it comes, until the header is complete or invalid.
// Then [ReadRequest] reads it from memory, and [Check] makes the further checks of net/http's server.
// [Refusal] has the bytes that net/http sends to refuse a request, before it closes the connection. The
// rules are in rules.go, and in versions.go and versions_go126.go if they differ between versions of Go.
//
// # Answers
//
// A [Response] sends the bytes that net/http sends for the same calls of a handler, Date aside. The
// differences:
//
//   - The request's Method, Close and ContentLength are read before the handler runs, so a handler
//     that changes them in place does not affect the answer. net/http looks at Method and
//     ContentLength later, at different times in different versions of Go, and may answer a GET
//     without a body, or a HEAD with one.
//   - A body that ReadFrom copies ends at the declared length, as on Go 1.27. Go 1.26 sends all of it.
//   - Write fails without effect after the handler has returned. net/http promises nothing about it.
//
// # Memory
//
// Handlers may keep a request, its parts, and the ResponseWriter for as long as they like, so these
// are allocated for each request. There are few allocations, but programs keep single parts, such as
// a Host or a token, of very many requests. So a part keeps at most 2 KiB beyond itself alive,
// however long the header is: the parts of a short header share one allocation, and a long header is
// spread over several (see cutter). With net/http each field is an allocation, and the parts of the
// first line keep each other alive, however long they are. Buffers that no handler can reach come
// from pools. A Response holds buffers only between the first Write and the next Flush or the end,
// so while it waits it costs only its own size.
//
// # Proof
//
// The tests run net/http beside this package, with the Go version that builds them. They compare
// requests with those that a real server passes to its handler, by fuzzing and byte by byte, and answers
// of random handlers: the bytes, what each call returns, and the error log.
package http1
