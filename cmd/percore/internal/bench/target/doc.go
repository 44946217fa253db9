// Package target is the process under test. It runs one small server, with the same code on any
// engine, and reports what that costs.
//
// The harness starts one such process per sample and talks to it through package control. OpStart
// starts the server. OpUsage takes a snapshot of what the process has consumed (from getrusage,
// /proc/self and the Go runtime).
package target
