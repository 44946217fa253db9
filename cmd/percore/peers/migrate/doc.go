// Package migrate has pairs of small servers, one pair for each library: before and after the migration
// to package reactor. Its test builds both servers of a pair and has the same conversation with them.
//
//	gnet     frames with a length in front, some of which take long to answer
//	nbio     lines to all connections, which must not be idle for long
//	netpoll  a counter for each connection, in lines
package migrate
