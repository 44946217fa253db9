// Package loop is percore's engine: it waits for descriptors to become ready,
// on as many loops as the load needs, and wakes the goroutines that use them.
// Its public face is github.com/percore/percore/loop.
//
// A loop knows readiness, never bytes. It polls epoll for events, marks their descriptors as ready
// and wakes the goroutines that wait for them. The goroutine that called Read then makes the system
// call itself, into its own slice, on its own core. That keeps every loop iteration short: a busy
// connection costs its loop at most one event per wake-up, so it can't starve the others.
//
// The parts, in the order in which an event meets them:
//
//	poller   the kernel's side: epoll and the eventfd (poller_linux.go is the
//	         only file that names EPOLL*)
//	Loop     polls, dispatches to FDs, runs submitted tasks
//	FD       a stream descriptor with the semantics of package net: blocking
//	         calls, deadlines, close from anywhere
//	half     one direction of an FD: readiness and the goroutine that waits (a table there)
//	wheel    the deadlines of a loop's descriptors
//	Group    the loops of a process, and when they end
//
// [Loop.NewFD] gives a stream socket blocking calls, deadlines and readiness callbacks; [AcceptPoller]
// waits for sockets that listen. Errors are raw: there is no *net.OpError around them.
//
// # Waiting
//
// By default no thread of the engine ever sleeps in epoll_wait: the Go runtime's poller, itself an
// epoll, watches a loop's epoll descriptor, and wakes the loop's goroutine, which polls without
// blocking. docs/decisions/waiting.md has the alternative, [Thread], and the measurements.
//
// # Platforms
//
// The engine needs Linux. Elsewhere the package compiles, but [NewGroup] fails with
// [errors.ErrUnsupported], and there is no AcceptPoller.
package loop
