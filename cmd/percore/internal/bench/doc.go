// Package bench measures what a server costs on percore and on package net, side by side, on the
// machine it runs on.
//
// Each sample starts a server process and a load process from the running executable, warms up, and
// measures one window. Nothing is in flight at the beginning and at the end of the window. The
// benchmark measures the server's CPU time (with getrusage in its process), the rate, and the
// latencies. Arms take turns, A B A B …, and are compared pair by pair, so slow drifts (clock
// speed, neighbors) affect both alike.
package bench
