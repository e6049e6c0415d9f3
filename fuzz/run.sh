#!/bin/sh
# fuzz/run.sh [SECONDS]: fuzz the TFRecord decoder under the address and undefined-behaviour sanitizers, for that long in
# all (60 without an argument). Fails on the first input that breaks it, and leaves that input in fuzz/crashes.
#
# CXX is a clang++ with libFuzzer; PYTHON has NumPy and Hypothesis; CORPUS is a folder that keeps what was learnt.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
: "${CXX:=clang++}"
: "${PYTHON:=.venv/bin/python}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
corpus=${CORPUS:-$work/corpus}
mkdir -p "$corpus" fuzz/crashes
core="src/native/tfrecord_frame.cpp src/native/tensor_proto.cpp src/native/example.cpp
  src/native/example_rows.cpp src/native/example_fast.cpp src/native/example_encode.cpp"
flags="-std=c++17 -O1 -g -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all"

for source in $core; do
  # $flags is many words.
  # shellcheck disable=SC2086
  "$CXX" $flags -c "$source" -o "$work/$(basename "$source" .cpp).o"
done
PYTHONPATH=tests "$PYTHON" fuzz/corpus.py "$work/seeds"

# The decoder has most of what can go wrong.
for share in scan:1 tensor:2 decode:7; do
  name=${share%:*}
  time=$((seconds * ${share#*:} / 10))
  [ "$time" -gt 0 ] || time=1
  "$CXX" -std=c++17 -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
    "fuzz/fuzz_$name.cpp" "$work"/*.o -o "$work/fuzz_$name"
  mkdir -p "$corpus/$name"
  echo "== fuzz_$name, $time s"
  "$work/fuzz_$name" -max_total_time="$time" -max_len=1024 -rss_limit_mb=2048 -malloc_limit_mb=64 -timeout=10 \
    -print_final_stats=1 -artifact_prefix=fuzz/crashes/ "$corpus/$name" "$work/seeds/$name" >"$work/log" 2>&1 || {
    tail -n 60 "$work/log"
    exit 1
  }
  grep -E 'number_of_executed_units|new_units_added|^Done' "$work/log"
done
rmdir fuzz/crashes 2>/dev/null || true
