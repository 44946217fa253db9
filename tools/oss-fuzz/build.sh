#!/bin/bash -eu
#
# Builds every fuzz target of the repository for OSS-Fuzz (https://google.github.io/oss-fuzz), in its
# image base-builder-go. The list comes from tools/fuzztargets; tools/oss-fuzz/harness says how a target
# becomes an archive for libFuzzer.

cd "$SRC/percore/tools"
export GOWORK=off
go build -o "$WORK/harness" ./oss-fuzz/harness
go run ./fuzztargets | while read -r package target; do
	name="$(tr / - <<<"${package#github.com/percore/percore/}-$target")"
	"$WORK/harness" -o "$WORK/$name.a" "$package" "$target"
	# shellcheck disable=SC2086 # lists of flags
	$CXX $CXXFLAGS $LIB_FUZZING_ENGINE "$WORK/$name.a" -lresolv -o "$OUT/$name"
done
