#!/usr/bin/env bash
# Tests of scripts/setup.sh: each fault of a machine is really injected, by fake programs in the search
# path, and each end must have the right exit code, name what is missing and say what to do next.
#
#   scripts/tests/setup.sh [WORD]      only the tests that have WORD in their name
#
# Prints "N passed, N failed"; exit 1 if any failed.
# shellcheck disable=SC2016  # the fake programs' own words
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
setup=$here/../setup.sh
only=${1:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

# fake NAME: its script comes from standard input. A link to the real program goes first: writing through
# it would replace that of this machine.
fake() {
	rm -f "$bin/$1"
	{ echo '#!/bin/bash' && cat; } >"$bin/$1"
	chmod +x "$bin/$1"
}

# A machine on which nothing is missing. A test then breaks one thing of it.
healthy() {
	bin=$work/bin home=$work/home
	rm -rf "$bin" "$home"
	mkdir -p "$bin" "$home"
	for tool in bash env sed sort grep tr cat tee rm mktemp basename dirname printf df chmod; do
		ln -s "$(type -P "$tool")" "$bin/$tool"
	done
	echo 'PRETTY_NAME="Testix 9"' >"$work/os-release"
	fake uname <<<'echo x86_64'
	fake id <<<'echo 0'
	fake dpkg-query <<<'shift 3; for name; do echo "installed $name"; done'
	fake apt-get <<<'echo "apt-get: $*" >>'"$work"'/calls'
	fake apt-cache <<<'echo "  Candidate: 1:1.96.0+dfsg1-1"'
	fake cargo <<<'echo "cargo 1.95.0 (f2d3ce0bd 2026-03-21)"'
	: >"$work/calls"
}

# What differs from a healthy machine in many tests: one package is not installed until apt-get installs it.
without_nasm() {
	fake dpkg-query <<<'shift 3; for name; do [ "$name" = nasm ] && ! grep -q "install .*nasm" '"$work"'/calls || echo "installed $name"; done; grep -q "install .*nasm" '"$work"'/calls'
}

# apt_says STATUS WORDS: how `apt-get install` ends.
apt_says() {
	fake apt-get <<<'case " $* " in *" install "*) echo "'"$2"'" >&2; exit '"$1"';; esac'
}

run_setup() {
	status=0
	env -i PATH="$bin" HOME="$home" OS_RELEASE="$work/os-release" LANG="${lang:-C}" TMPDIR="${tmp:-$work}" \
		"$bin/bash" "$setup" "$@" >"$work/out" 2>&1 </dev/null || status=$?
}

# expect CODE PATTERN…: every pattern is in a line of what was said.
expect() {
	local code=$1 pattern bad=
	shift
	[ "$status" = "$code" ] || bad="exit code $status, not $code"
	for pattern; do
		grep -qE -- "$pattern" "$work/out" || bad="nothing said of '$pattern'"
	done
	[ "$code" = 0 ] || grep -q 'next:' "$work/out" || bad="no next step"
	if [ -z "$bad" ]; then
		passed=$((passed + 1))
	else
		failed=$((failed + 1))
		echo "setup test: $name: $bad; it said:"
		sed 's/^/    /' "$work/out"
	fi
}

# promise NAME: begins a test on a healthy machine; skips it where another one was asked for.
promise() {
	name=$1
	lang='' tmp=''
	[[ $name == *"$only"* ]] || return 1
	healthy
}

# --- nothing is missing ---
promise a_machine_that_has_everything_is_left_alone && {
	run_setup
	expect 0
	[ ! -s "$work/calls" ] || { echo "setup test: $name: apt-get was called" && failed=$((failed + 1)); }
}
promise a_missing_package_is_installed_and_no_other && {
	without_nasm
	run_setup
	expect 0 'nasm +firmware' 'nothing is missing any more'
	grep -q 'install .*--no-remove nasm$' "$work/calls" || { echo "setup test: $name: $(cat "$work/calls")" && failed=$((failed + 1)); }
}
promise check_names_what_is_missing_and_installs_nothing && {
	without_nasm
	run_setup --check
	expect 3 'nasm +firmware' 'make setup'
	[ ! -s "$work/calls" ] || { echo "setup test: $name: apt-get was called" && failed=$((failed + 1)); }
}
promise either_of_two_packages_is_enough && {
	fake dpkg-query <<<'shift 3; for name; do [ "$name" = p7zip-full ] || echo "installed $name"; done; exit 1'
	run_setup
	expect 0
}
promise the_package_that_the_archive_has_is_chosen && {
	fake dpkg-query <<<'shift 3; for name; do case $name in p7zip-full | 7zip) grep -q " 7zip" '"$work"'/calls && echo "installed $name";; *) echo "installed $name";; esac; done; true'
	fake apt-cache <<<'[ "$2" = p7zip-full ] && echo "  Candidate: (none)" || echo "  Candidate: 24.08"'
	run_setup
	expect 0 'install .* 7zip$'
}

# --- Rust ---
promise a_rustup_shim_without_a_toolchain_gets_one && {
	fake cargo <<<'[ -e '"$work"'/toolchain ] && echo "cargo 1.95.0 (x)" && exit; echo "error: rustup could not choose a version of cargo to run, because one wasn'"'"'t specified explicitly, and no default is configured." >&2; exit 1'
	fake rustup <<<'echo "rustup $*" >>'"$work"'/calls; : >'"$work"'/toolchain'
	rm -f "$work/toolchain"
	run_setup
	expect 0 'has no toolchain' 'rustup default stable' 'nothing is missing any more'
}
promise a_rustup_shim_without_network_says_so && {
	fake cargo <<<'echo "error: no override and no default toolchain set" >&2; exit 1'
	fake rustup <<<'echo "error: could not download file" >&2; exit 1'
	run_setup
	expect 3 'rustup cannot install a toolchain' 'proxy'
}
promise check_names_a_rustup_shim_without_a_toolchain && {
	fake cargo <<<'echo "error: rustup could not choose a version of cargo to run, no default is configured" >&2; exit 1'
	fake rustup <<<'exit 0'
	run_setup --check
	expect 3 'has no toolchain'
}
promise a_shim_in_the_home_folder_stands_before_the_distributions && {
	mkdir -p "$home/.cargo/bin"
	printf '#!/bin/bash\necho "error: rustup: no default toolchain" >&2; exit 1\n' >"$home/.cargo/bin/cargo"
	chmod +x "$home/.cargo/bin/cargo"
	run_setup
	expect 3 "$home/.cargo/bin/cargo is rustup's" 'rustup default stable'
}
promise a_cargo_that_crashes_is_named_with_its_signal && {
	fake cargo <<<'kill -SEGV $$'
	run_setup
	expect 3 'cargo was ended by signal 11' 'repair or remove'
}
promise a_cargo_that_fails_is_quoted && {
	fake cargo <<<'echo "cargo: error while loading shared libraries: libgit2.so" >&2; exit 127'
	run_setup
	expect 3 'exit code 127: .*libgit2.so' 'repair or remove'
}
promise a_cargo_without_a_word_is_named && {
	fake cargo <<<'exit 1'
	run_setup
	expect 3 'fails with exit code 1: it says nothing' 'repair or remove'
}
promise a_cargo_that_prints_no_version_is_named && {
	fake cargo <<<'echo hello'
	run_setup
	expect 3 'prints no version: hello'
}
promise an_old_cargo_outside_the_distribution_is_named && {
	fake cargo <<<'echo "cargo 1.70.0 (x)"'
	run_setup
	expect 3 'cargo is 1.70.0' 'rustup update stable'
}
promise a_bare_machine_gets_the_archives_rust && {
	rm "$bin/cargo"
	fake apt-get <<<'case " $* " in *" rustc "*) printf "#!/bin/bash\necho cargo 1.96.0\n" >'"$bin"'/cargo; chmod +x '"$bin"'/cargo;; esac'
	run_setup
	expect 0 'this machine has none' 'install .* cargo rustc rustfmt rust-clippy'
}
promise a_release_with_an_old_rust_gets_the_browsers_one && {
	rm "$bin/cargo"
	fake apt-cache <<<'[ "$2" = cargo-web ] && echo "  Candidate: 1.96.0+dfsg1-1~deb13u1" || echo "  Candidate: 1.85.1"'
	fake apt-get <<<'case " $* " in *" cargo-web "*) printf "#!/bin/bash\necho cargo 1.96.0\n" >'"$bin"'/cargo; chmod +x '"$bin"'/cargo;; esac'
	run_setup
	expect 0 'install .* cargo-web rustc-web rustfmt-web rust-web-clippy'
}
promise an_archive_without_rust_is_named && {
	rm "$bin/cargo"
	fake apt-cache <<<'echo "  Candidate: (none)"'
	run_setup
	expect 3 'archives of Testix 9 have no Rust' 'install rustup'
}

# --- the machine ---
promise a_machine_without_apt_is_named && {
	rm "$bin/apt-get"
	run_setup
	expect 3 'this is Testix 9, and it has no apt-get' 'Debian 12'
}
promise an_unknown_distribution_without_apt_is_no_riddle && {
	rm "$bin/apt-get" "$work/os-release"
	run_setup
	expect 3 'an unknown distribution' 'Debian 12'
}
promise a_machine_without_dpkg_is_named && {
	rm "$bin/dpkg-query"
	run_setup
	expect 3 'dpkg-query is not'
}
promise a_broken_package_database_is_named && {
	fake dpkg-query <<<'echo "error: parsing file" >&2; exit 2'
	run_setup
	expect 1 'does not say which packages' 'dpkg --configure -a'
}
promise another_architecture_is_named && {
	fake uname <<<'echo riscv64'
	run_setup
	expect 3 'this machine is riscv64'
}
promise a_machine_without_home_is_named && {
	home=
	run_setup
	expect 3 'HOME is not set'
}
promise a_user_without_root_and_sudo_gets_the_line_to_run && {
	without_nasm
	fake id <<<'echo 1000'
	run_setup
	expect 3 'not root' 'apt-get install --yes --no-install-recommends nasm'
}
promise a_sudo_that_asks_where_nobody_answers_is_not_used && {
	without_nasm
	fake id <<<'echo 1000'
	fake sudo <<<'echo "sudo: a password is required" >&2; exit 1'
	run_setup
	expect 3 'not root' 'apt-get install .* nasm'
}
promise a_user_with_sudo_installs_through_it && {
	without_nasm
	fake id <<<'echo 1000'
	fake sudo <<<'[ "$1" != -n ] || shift; "$@"'
	run_setup
	expect 0 'sudo env .*apt-get .*install'
}

# --- apt ---
promise a_machine_without_network_is_named && {
	without_nasm
	apt_says 100 "E: Failed to fetch http://archive/nasm.deb  Temporary failure resolving 'archive'"
	run_setup
	expect 3 'archive cannot be reached' 'proxy'
}
promise an_update_that_fetched_nothing_is_the_networks_fault && {
	without_nasm
	fake apt-get <<<'case " $* " in *" update "*) echo "W: Failed to fetch http://archive/InRelease  Could not connect";; *) echo "E: Unable to locate package nasm" >&2; exit 100;; esac'
	run_setup
	expect 3 'archive cannot be reached.*nasm' 'proxy'
}
promise an_archive_without_the_package_is_named && {
	without_nasm
	apt_says 100 'E: Unable to locate package nasm'
	run_setup
	expect 3 'archives of Testix 9 do not have: nasm' 'universe'
}
promise a_full_disk_is_named && {
	without_nasm
	apt_says 100 "E: You don't have enough free space in /var/cache/apt/archives/."
	run_setup
	expect 3 'a disk is full' 'make room'
}
promise a_disk_without_room_for_a_log_is_named && {
	without_nasm
	tmp=$work/nowhere
	run_setup
	expect 3 'no file can be made in' 'make room'
}
promise another_apt_at_work_is_named && {
	without_nasm
	apt_says 100 'E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812 (apt-get)'
	run_setup
	expect 3 'another program is installing' 'wait'
}
promise an_interrupted_dpkg_is_named && {
	without_nasm
	apt_says 100 "E: dpkg was interrupted, you must manually run 'dpkg --configure -a'"
	run_setup
	expect 1 'half installed' 'dpkg --configure -a'
}
promise a_package_in_the_way_is_not_removed && {
	without_nasm
	apt_says 100 'E: Packages need to be removed but remove is disabled.'
	run_setup
	expect 1 'in the way'
}
promise any_other_failure_of_apt_has_its_exit_code && {
	without_nasm
	apt_says 42 'E: something new'
	run_setup
	expect 1 'something new' 'apt-get install failed with exit code 42'
}
promise another_language_changes_nothing && {
	without_nasm
	lang=de_DE.UTF-8
	fake apt-get <<<'[ "$LC_ALL" = C ] || { echo "E: Paket nicht gefunden" >&2; exit 100; }; case " $* " in *" install "*) echo "E: Unable to locate package nasm" >&2; exit 100;; esac'
	run_setup
	expect 3 'do not have: nasm'
}
promise a_fault_that_nobody_foresaw_names_its_line && {
	without_nasm
	fake uname <<<'exit 7'
	run_setup
	expect 7 'failed with exit code 7 at line'
}
promise a_wrong_option_shows_the_usage && {
	run_setup --frobnicate
	echo 'next: (a usage is its own next step)' >>"$work/out"
	expect 2 'setup.sh --check'
}

echo "setup: $passed passed, $failed failed"
[ "$failed" = 0 ]
