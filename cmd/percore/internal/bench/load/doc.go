// Package load is the process of the load generator. It drives a target over plain package net,
// with one goroutine per connection (or per gRPC caller). It builds the request bytes once, and
// parses only enough of a response to notice a wrong answer. So even on a small machine the
// benchmark measures the server.
//
// The harness starts one such process per sample. OpPrepare connects, OpRun runs one phase (warm-up
// or measurement), and OpIdle opens connections that are used once and then left alone. A phase
// ends only when every operation it began has ended. So nothing is in flight between phases, and
// the server's CPU time belongs to exactly the operations counted.
//
// A phase is a closed loop or an open loop. In a closed loop each worker begins its next operation
// when the last has ended. In an open loop operations begin at times fixed beforehand, whatever the
// server does. There latency counts from the time at which an operation was due, so an operation
// that had to wait behind a slow one shows it. Otherwise a server could stall unnoticed
// ("coordinated omission").
package load
