// Package debug shows percore's figures ([percore.ReadStats]) on a page: listeners, loops, the
// states of adapters, and the last minute of the most telling figures as charts.
//
//	http.Handle("/debug/percore", debug.Handler())
//
// The page is for people who look at a server, without a metrics system or beside one. Nothing is
// counted or kept for it while it is not looked at: the browser asks once a second, and draws the
// charts from the differences. The same figures as JSON are at "?format=json".
//
// It shows addresses and the program's structure, and is for the same eyes as net/http/pprof: an
// address that only the operators reach.
package debug
