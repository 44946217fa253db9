// Package pipes is the pool of pipes that package zerocopy splices through. It is a separate
// package so that the tests of every package can tell an idle pipe from a leaked one: see [Drain].
package pipes
