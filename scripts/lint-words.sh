#!/usr/bin/env bash
# Words of scripts/words.txt that are not the field's, in every file of this tree.
set -Eeuo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib/say.sh
. scripts/lib/say.sh
command -v python3 >/dev/null || missing "python3 is missing" "run 'make setup'"
exec python3 scripts/lint/words.py "$@"
