// Package clients runs HTTP/2 and gRPC clients that are not written in Go against percore's servers:
// gRPC's C core with Python and C++, grpc-js, Connect's client for Node, Node's http2, nghttp2, curl,
// and h2 and httpx for Python. Each plays the same scenarios, in clear, over TLS and on a unix socket,
// to grpc-go's or net/http's server first: what a client sees there, it must see from percore's.
//
// The clients are in programs. The command install, in this folder, gets what they need, except Go:
//
//	bash conformance_test/clients/install
package clients
