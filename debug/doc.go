// Package debug shows percore's metrics ([percore.ReadStats]) on a web page. It begins with whether
// all is well, or what is wrong, with links to what to do (docs/OPERATIONS.md, "What can be wrong").
// Charts of the most important metrics over the last minute follow, grouped by question, and then
// the listeners, the loops and the states of the adapters.
//
//	http.Handle("/debug/percore", debug.Handler())
//
// The page is for people who look at a server, without a metrics system or in addition to one. It
// costs nothing while it is not open: the browser polls once a second, and draws the charts from the
// differences. The verdict covers the last minute, or the part of it during which a page was open;
// counts since the process started follow it. [Report] returns the same as text, and "?format=json"
// the same metrics as JSON.
//
// The page shows addresses and the program's structure. As with net/http/pprof, serve it only on an
// address that only operators can reach.
package debug
