# The commands themselves are in .ci/run, which works without make.

.PHONY: all help check test race faults invariants fallback x86 stress fuzz bench

all: ## everything that must pass before a change lands
	@.ci/run

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: ## gofmt, go vet, staticcheck, tidy modules, other platforms, project rules
	@.ci/run check

test: ## the tests
	@.ci/run test

race: ## the tests under the race detector
	@.ci/run race

faults: ## the tests in a build whose system calls can be made to fail
	@.ci/run faults

invariants: ## the tests in the checking build
	@.ci/run invariants

fallback: ## the tests with package net in place of the engine
	@.ci/run fallback

x86: ## the tests of the library and the adapters built for 32 bits
	@.ci/run x86

stress: ## the tests under the race detector, COUNT times (3), on 1, 2 and 8 processors
	@.ci/run stress

fuzz: ## each fuzz target for FUZZTIME (30s)
	@.ci/run fuzz

bench: ## the benchmarks, then percore against package net
	@.ci/run bench
