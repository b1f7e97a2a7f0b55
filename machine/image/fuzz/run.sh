#!/bin/sh
# Builds the fuzz target and its seeds with clang, and fuzzes for a bounded time.
#   fuzz/run.sh [SECONDS]        30 seconds when not given; exit 0 when nothing was found
# Uses $CLANG, or the newest clang that is there. The build and the corpus, which grows from
# run to run, go to $DORMOUSE_FUZZ_DIR, or target/fuzz-image.
set -eu

seconds=${1:-30}
image=$(cd "$(dirname "$0")/.." && pwd)
out=${DORMOUSE_FUZZ_DIR:-$(cd "$image/../.." && pwd)/target/fuzz-image}

find_clang() {
	for candidate in clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14; do
		if command -v "$candidate"; then
			return
		fi
	done
	echo "fuzz: no clang; install the packages clang-14 and libclang-rt-14-dev" >&2
	exit 3
}

clang=${CLANG:-$(find_clang)}
flags="-std=c11 -g -O1 -Wall -Wextra -Werror -fno-omit-frame-pointer -I$image/include"
mkdir -p "$out/corpus" "$out/seeds" "$out/found"

# shellcheck disable=SC2086  # the flags are words
"$clang" $flags "$image/fuzz/make_seeds.c" -o "$out/make_seeds"
# shellcheck disable=SC2086
"$clang" $flags -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
	"$image/fuzz/fuzz_image.c" "$image"/src/*.c -o "$out/fuzz_image"
"$out/make_seeds" "$out/seeds"

echo "fuzz: $seconds s, corpus in $out/corpus, messages in $out/log"
status=0
"$out/fuzz_image" -max_total_time="$seconds" -max_len=8192 -timeout=10 \
	-artifact_prefix="$out/found/" -print_final_stats=1 "$out/corpus" "$out/seeds" >"$out/log" 2>&1 || status=$?
if [ "$status" -ne 0 ]; then
	tail -n 60 "$out/log" >&2
	echo "fuzz: found something; the input is in $out/found, all messages in $out/log" >&2
	exit "$status"
fi
echo "fuzz: $(grep '^Done' "$out/log"), nothing found"
