// Package loop sets up percore's event loops, shows how busy they are, and runs code on them.
//
// Most programs need nothing of it: all listeners and dialers share a default group of loops. A
// [Group] of your own, which [NewGroup] makes for percore.ListenConfig.Group or
// percore.Dialer.Group, has as many loops as you say, which wait as you say. [Group.Stats] and
// [ProcessStats] show how connections and events spread over the loops, and how long callbacks hold
// them up. [Loop.Submit] and [Loop.AfterFunc] run functions on a loop's goroutine; percore.Conn.Loop
// returns the loop of a connection.
//
// The engine needs Linux. Elsewhere the package compiles and NewGroup fails with
// [errors.ErrUnsupported].
package loop
