// Package debug shows percore's metrics ([percore.ReadStats]) on a web page: first whether all is well,
// or what is wrong, with links to what to do (docs/OPERATIONS.md, "What can be wrong"); then charts of
// the most important metrics over the last minute, by question; then listeners, loops and the states
// of adapters.
//
//	http.Handle("/debug/percore", debug.Handler())
//
// The page is for people who look at a server, without a metrics system or in addition to one. It
// costs nothing while it is not open: the browser polls once a second, and draws the charts
// from the differences. The verdict is about the last minute, as far as a page was open; counts since
// the process started are listed behind it. [Report] has the same as text. The same metrics as JSON are
// at "?format=json".
//
// The page shows addresses and the program's structure. Like net/http/pprof, serve it only on an
// address that just the operators can reach.
package debug
