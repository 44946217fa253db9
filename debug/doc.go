// Package debug shows percore's metrics ([percore.ReadStats]) on a web page: listeners, loops, the
// states of adapters, and charts of the most important metrics over the last minute.
//
//	http.Handle("/debug/percore", debug.Handler())
//
// The page is for people who look at a server, without a metrics system or in addition to one. It
// costs nothing while it is not open: the browser polls once a second, and draws the charts
// from the differences. The same metrics as JSON are at "?format=json".
//
// The page shows addresses and the program's structure. Like net/http/pprof, serve it only on an
// address that just the operators can reach.
package debug
