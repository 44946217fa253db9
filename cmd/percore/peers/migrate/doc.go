// Package migrate has small servers before and after their migration to package reactor, a pair for
// each library. Its test builds both of a pair and has the same conversation with them.
//
//	gnet     frames with a length in front, some of which take long to answer
//	nbio     lines to all connections, which must not be idle for long
//	netpoll  a counter for each connection, in lines
package migrate
