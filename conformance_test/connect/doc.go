// Package connect runs the conformance suite of Connect, gRPC and gRPC-Web against percore's servers
// and client. It has only tests, and a go.mod of its own for the suite's dependencies.
package connect
