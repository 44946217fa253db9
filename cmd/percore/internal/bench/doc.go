// Package bench measures the price of a server on percore and on package net,
// side by side, on the machine it runs on.
//
// Each sample starts a server process and a load process from the running
// executable, warms up, and measures one window between two moments in which
// nothing is in flight: the server's CPU time (getrusage of its own
// process), the rate, and the latencies. Arms take turns, A B A B …, and are
// compared pair by pair, so that slow drifts (clock speed, neighbors) touch
// both alike.
package bench
