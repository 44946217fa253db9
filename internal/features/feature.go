// Package features holds what the kernel's shortcuts for moving bytes have in common: the switches
// that turn off a shortcut or the engine, and the counters of the bytes that went each way. The
// shortcuts themselves are in package zerocopy and under percore's connections. [zerocopy.Stats] and
// [zerocopy.Features] are the public view of this package.
//
// [zerocopy.Stats]: https://pkg.go.dev/github.com/percore/percore/zerocopy#Stats
// [zerocopy.Features]: https://pkg.go.dev/github.com/percore/percore/zerocopy#Features
package features

import (
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// A Feature is one of the kernel's shortcuts. It is on unless the environment switched it off, or
// the kernel turned out not to have it:
//
//	switchedOff  refusal   the feature is
//	false        0         on
//	true         any       off: by PERCOREDEBUG, or by a test
//	false        an errno  off: the kernel's answer, permanently
//
// A refusal that concerns only one descriptor (such as EINVAL from a file system that can't splice)
// is not recorded here. The caller may remember it.
type Feature struct {
	name string

	// atomic
	switchedOff atomic.Bool
	refusal     atomic.Uint32 // a syscall.Errno
}

// The features, with the names that PERCOREDEBUG has for them.
var (
	Sendfile = &Feature{name: "sendfile"}
	Splice   = &Feature{name: "splice"}
	Writev   = &Feature{name: "writev"}

	// RawSyscall sends and receives small messages without notifying Go's scheduler.
	RawSyscall = &Feature{name: "rawsyscall"}

	// DirectWait lets a worker wait for the socket of its only connection.
	DirectWait = &Feature{name: "directwait"}
)

// All lists the features.
var All = []*Feature{Sendfile, Splice, Writev, RawSyscall, DirectWait}

// variable is the environment variable that switches features off. It is read
// once, when the program starts; the engine's setting is read by EngineIsNet.
const variable = "PERCOREDEBUG"

// The settings for the engine, and the one that leaves HTTP to net/http's server.
const (
	engineNet     = "engine=net"
	enginePercore = "engine=percore"
	httpNet       = "http=net"
)

// EngineIsNet reports whether the environment says that listeners and connections are package
// net's. It checks each time, so a program can set the variable before it listens. It logs the
// first time that it returns true.
func EngineIsNet() bool { return hasSetting(engineNet, enginePercore, warnEngine) }

// HTTPIsNet reports whether the environment says that net/http serves the connections that package
// httpadapter is given, so that its part in a fault can be found out. It logs the first time that it
// returns true.
func HTTPIsNet() bool { return hasSetting(httpNet, "", warnHTTP) }

// hasSetting reports whether the variable has a setting, without its opposite behind it. If so it calls
// warn, because the variable may have been forgotten.
func hasSetting(setting, opposite string, warn func()) (has bool) {
	for s := range strings.SplitSeq(os.Getenv(variable), ",") {
		has = s == setting || has && (s == "" || s != opposite)
	}
	if has {
		warn()
	}
	return has
}

var (
	warnEngine = sync.OnceFunc(func() {
		slog.Warn("percore: " + variable + " has " + engineNet + ": listeners and dialed connections are package net's;" +
			" package reactor and restarts with package handover refuse to work")
	})
	warnHTTP = sync.OnceFunc(func() {
		slog.Warn("percore: " + variable + " has " + httpNet + ": net/http serves the connections of package httpadapter")
	})
)

func init() {
	if unknown := apply(os.Getenv(variable), All); len(unknown) > 0 {
		slog.Warn("percore: "+variable+" has settings that this version does not know; it ignores them",
			"unknown", strings.Join(unknown, ","), "known", strings.Join(append(names(All), "engine", "http"), ","))
	}
	if runtime.GOOS != "linux" {
		for _, f := range All {
			f.Refuse(syscall.ENOSYS)
		}
	}
}

// apply sets the switches according to a value of PERCOREDEBUG: settings of the form name=0 or
// name=1, separated by commas. As with GODEBUG, the later of two settings for the same name counts,
// and a setting for another version does no harm. apply ignores settings that name no feature or
// have another value, and returns them.
func apply(settings string, features []*Feature) (unknown []string) {
	for setting := range strings.SplitSeq(settings, ",") {
		name, value, _ := strings.Cut(setting, "=")
		i := slices.IndexFunc(features, func(f *Feature) bool { return f.name == name })
		switch {
		case setting == "", setting == engineNet, setting == enginePercore, setting == httpNet:
		case i < 0 || value != "0" && value != "1":
			unknown = append(unknown, setting)
		default:
			features[i].switchedOff.Store(value == "0")
		}
	}
	return unknown
}

// names returns the features' names.
func names(features []*Feature) (names []string) {
	for _, f := range features {
		names = append(names, f.name)
	}
	return names
}

// Name returns the feature's name in PERCOREDEBUG.
func (f *Feature) Name() string { return f.name }

// On reports whether the feature may be used.
func (f *Feature) On() bool { return !f.switchedOff.Load() && f.refusal.Load() == 0 }

// WhyOff says why the feature is off, or "" if it is on.
func (f *Feature) WhyOff() string {
	switch errno := syscall.Errno(f.refusal.Load()); {
	case f.switchedOff.Load():
		return "switched off"
	case errno != 0:
		return "refused by the kernel: " + errno.Error()
	}
	return ""
}

// Refuse turns the feature off for the rest of the process. errno is the kernel's answer: it does
// not have the feature, or a filter forbids it.
func (f *Feature) Refuse(errno syscall.Errno) { f.refusal.CompareAndSwap(0, uint32(errno)) }

// Force turns the feature on or off for a test until restore is called, whatever the environment
// and the kernel say. Tests that use it must not run in parallel with others.
func (f *Feature) Force(on bool) (restore func()) {
	off, errno := f.switchedOff.Load(), f.refusal.Load()
	f.switchedOff.Store(!on)
	f.refusal.Store(0)
	return func() {
		f.switchedOff.Store(off)
		f.refusal.Store(errno)
	}
}
