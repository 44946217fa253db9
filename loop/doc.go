// Package loop sets up percore's event loops, shows how busy they are, and runs code on them.
//
// Most programs don't need it: all listeners and dialers share a default group of loops. [NewGroup]
// makes a [Group] of your own, for percore.ListenConfig.Group or percore.Dialer.Group, and lets you
// choose how many loops it has and how they wait. [Group.Stats] and [ProcessStats] show how
// connections and events are spread over the loops, and how long callbacks hold the loops up.
// [Loop.Submit] and [Loop.AfterFunc] run functions on a loop's goroutine; percore.Conn.Loop returns
// the loop of a connection.
//
// The engine needs Linux. Elsewhere the package compiles and NewGroup fails with
// [errors.ErrUnsupported].
package loop
