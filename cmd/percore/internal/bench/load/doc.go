// Package load is the load generator's process. It drives a target with one
// goroutine per connection (or per gRPC caller) over plain package net, with
// request bytes built once and the smallest response parser that still notices
// a wrong answer, so that on a small machine the measurement is of the server.
//
// The harness starts one such process per sample: OpPrepare connects, OpRun
// runs one phase (warm-up or measurement), OpIdle opens connections that are
// used once and then left alone. A phase ends only when every operation it began
// has ended, so between phases nothing is in flight and the server's processor
// time can be attributed to exactly the operations counted.
//
// A phase is closed loop (each worker begins its next operation when the last has
// ended) or open loop (operations begin at times fixed beforehand, independent of the
// server does). In an open loop latency counts from the time at which an operation
// was due, so that an operation that had to wait behind a slow one shows it;
// otherwise a server could stall unnoticed ("coordinated omission").
package load
