#!/usr/bin/env bash
# The executor against a big core, all of it; goes on where it was interrupted.
#
#   offload/tests/full.sh OUT DORMOUSE STATES BLOCKS INPUTS
#
# STATES: encodings and states for each line of the instruction table. BLOCKS: random blocks, of each
# instruction set. INPUTS: random inputs for each guest program, in every mode. Keeps what each part
# said in OUT, under a name that is made of the sources; what is there is not run again.
set -euo pipefail
if [ $# != 5 ]; then
	sed -n '4,8s/^# \{0,1\}//p' "$0" >&2
	exit 2
fi
here=$(cd "$(dirname "$0")/.." && pwd)
dormouse=$(realpath "$2")
states=$3
blocks=$4
inputs=$5
sources=$(cd "$here" && find include isa src target tests guest linux build.sh linux-source.sh -type f -print0 |
	sort -z | xargs -0 cat | sha256sum | cut -c 1-12)
mkdir -p "$1/$sources"
out=$(cd "$1/$sources" && pwd)
"$here/tests/build.sh" "$out" big-core
export OFFLOAD_BIG_CORE=$out

# part NAME COMMAND…: runs it unless it is done; what it said is kept when it succeeds.
part() {
	local name=$1
	shift
	if [ ! -e "$out/$name.txt" ]; then
		"$@" >"$out/running.txt" 2>"$out/$name.log" || {
			cat "$out/running.txt" >&2
			echo "offload: $name failed; $out/$name.log says more" >&2
			exit 1
		}
		mv "$out/running.txt" "$out/$name.txt"
		rm -f "$out/$name.log"
	fi
	sed "s/^/$name: /" "$out/$name.txt"
}

check=$out/differential
# Another seed each time; one that goes on keeps it. SEED chooses one.
[ -e "$out/seed" ] || echo "${SEED:-$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}" >"$out/seed"
seed=$(cat "$out/seed")
# Two caches: a usual one, and one so small that it is emptied all the time.
usual=262144 small=4096 all=0x1fff
part instructions "$check" instructions "$states" "$seed"
part thumb-instructions "$check" thumb-instructions "$states" "$seed"
for tenth in 1 2 3 4 5 6 7 8 9 10; do
	part "blocks-$tenth" "$check" blocks $((blocks / 10)) $((seed + tenth)) $all $usual
	part "thumb-blocks-$tenth" "$check" thumb-blocks $((blocks / 10)) $((seed + tenth)) $all $usual
	part "loops-$tenth" "$check" loops $((blocks / 10)) $((seed + tenth)) $all $usual
	part "thumb-loops-$tenth" "$check" thumb-loops $((blocks / 10)) $((seed + tenth)) $all $usual
done
part blocks-small-cache "$check" blocks $((blocks / 10)) $((seed + 11)) $all $small
part thumb-blocks-small-cache "$check" thumb-blocks $((blocks / 10)) $((seed + 11)) $all $small
part loops-small-cache "$check" loops $((blocks / 10)) $((seed + 11)) $all $small
part thumb-loops-small-cache "$check" thumb-loops $((blocks / 10)) $((seed + 11)) $all $small
part hand-back "$check" hand-back $((blocks / 10)) $((seed + 12))
part interrupted "$check" interrupted $((blocks / 10)) $((seed + 19)) $all $usual
part kept "$check" kept $((blocks / 10)) $((seed + 15)) $all $usual
part kept-small-cache "$check" kept $((blocks / 10)) $((seed + 16)) $all $small
part caches "$check" caches $((blocks / 20)) $((seed + 17))
part directed "$check" directed 100 $((seed + 18))
part wild-stores "$check" wild-stores "$blocks" $((seed + 14))
part modes "$check" modes $((states / 20)) $((seed + 13))
cd "$here"
for program in glob kfifo sort list_sort rbtree crc32 string callback; do
	part "program-$program" "$dormouse" offload check "$program" --inputs "$inputs"
done
