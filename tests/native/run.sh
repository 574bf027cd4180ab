#!/bin/sh
# Builds and runs the kernels' tests: tests/native/run.sh [plain|asan|ubsan|tsan] [name of a test file...]
# Benchmarks: tests/native/run.sh bench [name...]. Digests of what the kernels give: tests/native/run.sh golden.
# BUILD names another folder for what is built.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mode=${1:-plain}
[ $# -gt 0 ] && shift
build=${BUILD:-$here/../../build/native-tests}
pattern=test_
target=tests
if [ "$mode" = bench ]; then mode=plain pattern=bench_ target=benches; fi
if [ "$mode" = golden ]; then mode=plain pattern=golden_; fi

programs=""
for source in "$here/$pattern"*.cpp; do
  name=$(basename "$source" .cpp)
  if [ $# -gt 0 ]; then
    case " $* " in *" $name "* | *" ${name#"$pattern"} "*) ;; *) continue ;; esac
  fi
  programs="$programs $build/$mode/$name"
done
make --quiet --no-print-directory -j2 -f "$here/Makefile" MODE="$mode" BUILD="$build" ${programs:-$target}
for program in $programs; do
  echo "$(basename "$program") ($mode)"
  "$program"
done
