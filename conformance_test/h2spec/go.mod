// A module of its own: what h2spec depends on must not weigh on those who import percore.
module github.com/percore/percore/conformance_test/h2spec

go 1.26.0

replace github.com/percore/percore => ../..

require (
	github.com/percore/percore v0.0.0-00010101000000-000000000000
	github.com/summerwind/h2spec v2.2.1+incompatible // the newest that has a version as a module
)

require (
	github.com/fatih/color v1.19.0 // indirect
	github.com/mattn/go-colorable v0.1.14 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
	go.uber.org/goleak v1.3.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)
