# Dormouse: the commands of the README. Everything else is `dormouse --help`.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

# rustup and cargo install here; a login shell may not have been started since.
export PATH := $(HOME)/.cargo/bin:$(PATH)

CARGO ?= cargo
PROFILE := release
TARGET := x86_64-unknown-linux-gnu
DORMOUSE := target/$(TARGET)/$(PROFILE)/dormouse
DEMO_DIR := out/demo
BENCH_DIR := out/bench
FUZZ_SECONDS ?= 20
ROUNDS ?= 5
LOAD ?= quiet
CYCLES ?= 2
STRESS_CYCLES ?= 300
STATES ?= 1000
BLOCKS ?= 100000
INPUTS ?= 100
GRAPHS ?= 20
INJECTIONS ?= 50
SEED ?= 1
RELEASE ?= trixie

.PHONY: test-zdtm publish-zdtm help setup build demo test test-full test-soak test-setup test-distribution test-unit test-suite test-fuzz test-devices-order test-devices-checked test-end-to-end stress bench bench-machine bench-wake bench-process bench-bandwidth bench-offload bench-devices check-offload test-bandwidth-scheduler test-kernels publish-machine bench-scale publish-scale publish-process publish-bandwidth publish-offload publish-devices fmt lint deny clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install the packages that are missing (asks for nothing when none is)
	@scripts/setup.sh

build: setup ## Build the dormouse command
	@$(CARGO) build --quiet --profile $(PROFILE) --package dormouse --package dormouse-guest --package dormouse-oci --package dormouse-machine --bins

demo: build ## Fill memory, run a service, sleep into CXL memory, lose power, wake, verify
	@scripts/demo.sh $(DORMOUSE) $(DEMO_DIR)

test: setup lint test-setup test-fuzz test-devices-order test-suite ## Everything that continuous integration runs

test-full: export DORMOUSE_TEST_LOSSES ?= 2
test-full: export DORMOUSE_TEST_PAUSES ?= 2
test-full: test deny ## The quick gate, then what takes longer and finds less; a release runs it
	@scripts/setup.sh --for containers
	@$(TESTS) --ignored --limit-minutes 600
	@$(ZDTM)

test-setup: ## The scripts of this Makefile against machines that lack something
	@scripts/tests/setup.sh
	@scripts/tests/demo.sh
	@scripts/tests/lint.sh
	@scripts/tests/initramfs-hook.sh

test-distribution: ## The demo in a minimal chroot of another release, as root (RELEASE=trixie COMMAND="make test")
	@scripts/chroot-test.sh $(RELEASE) $(or $(COMMAND),demo)

test-unit: build ## Unit and property tests, on this machine
	@$(CARGO) test --quiet --profile $(PROFILE) --workspace

test-fuzz: setup ## A short run of the image fuzzer (FUZZ_SECONDS=…)
	@machine/image/fuzz/run.sh $(FUZZ_SECONDS)

test-devices-order: setup ## Random device graphs through the kernel's ordering code, on this machine
	@devices/kernel/tests/run.sh

test-devices-checked: build ## The device kernel with lockdep, KASAN, UBSAN, then KCSAN: two kernels to build (GRAPHS= INJECTIONS= SEED=)
	@for checks in memory races; do $(DORMOUSE) lab devices check --machine devices-$$checks --checked $$checks \
		--threads --graphs $(GRAPHS) --injections $(INJECTIONS) --seed $(SEED); done

# Without `--package`: with fewer packages, shared crates have other features and are compiled once more.
SOAK_TESTS = $(CARGO) run --quiet --profile $(PROFILE) --bin soak --
# Each test in a process of its own, to the end of the run.
TESTS = $(SOAK_TESTS) --rounds 1 --restart --order name --out out/test-run
# Those that `make test` leaves out, by their names; one at a time. They take long: an interrupted run goes on.
LEFT_OUT = $(SOAK_TESTS) --rounds 1 --resume --order name --out out/test-run/$@ \
	--ignored --jobs 1 --limit-minutes 600 --only

test-suite: build ## Every test of the workspace: in crates, and end to end in the emulated machine
	@$(DORMOUSE) lab build
	@$(DORMOUSE) lab build --devices
	@$(CARGO) test --quiet --profile $(PROFILE) --workspace --doc
	@$(TESTS)

test-end-to-end: build ## Sleep, lose power and wake in the emulated machine
	@$(DORMOUSE) lab build
	@$(DORMOUSE) lab build --devices
	@$(TESTS) --only end_to_end::

SOAK = $(SOAK_TESTS) --rounds $(ROUNDS) --load '$(LOAD)' \
	$(if $(filter command environment,$(word 1,$(origin SEED))),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) $(if $(FULL),--full)

test-soak: build ## Every test ROUNDS times in random order beside LOAD=quiet|busy|COMMAND; goes on where it was (SEED= ONLY= FULL=1)
	@$(DORMOUSE) lab build
	@$(DORMOUSE) lab build --devices
	@$(SOAK)

ZDTM = python3 tests/zdtm/zdtm.py --dormouse $(DORMOUSE) $(if $(ONLY),--only '$(ONLY)') $(if $(SAMPLE),--sample $(SAMPLE)) \
	$(if $(filter command environment,$(word 1,$(origin SEED))),--seed $(SEED))

test-zdtm: build ## CRIU's own test suite with Dormouse in CRIU's place, as root; goes on where it was interrupted (ONLY= SAMPLE= SEED=)
	@$(ZDTM)

publish-zdtm: build ## The same, and put the table into docs/
	@$(ZDTM) --publish docs/evaluation/zdtm.md

ZDTM_MACHINE = python3 tests/zdtm/machine.py --dormouse $(DORMOUSE) --kernel '$(KERNEL)' $(if $(ONLY),--only '$(ONLY)') \
	$(if $(LIMIT_S),--time-limit $(LIMIT_S))

.PHONY: test-zdtm-machine
test-zdtm-machine: build ## CRIU's test suite in the emulated machine; goes on where it was (KERNEL=7.3.4+deb13-amd64 ONLY= LIMIT_S=9000)
	@$(ZDTM_MACHINE)

PROGRAMS = python3 tests/programs/programs.py --dormouse $(DORMOUSE) \
	$(if $(filter command environment,$(word 1,$(origin SEED))),--seed $(SEED)) $(ONLY)

.PHONY: test-programs publish-programs
test-programs: build ## Programs of the distribution, persisted, killed and restored, as root (ONLY="etcd sshd" SEED=)
	@scripts/setup.sh --for programs
	@$(PROGRAMS)

publish-programs: build ## The same, and put the table into docs/
	@scripts/setup.sh --for programs
	@$(PROGRAMS) --publish docs/evaluation/process.md

stress: build ## Many sleeps under load, then many with power cuts; goes on where it was (STRESS_CYCLES=…)
	@$(DORMOUSE) lab stress --machine stress --cycles $(STRESS_CYCLES)
	@$(DORMOUSE) lab stress --machine stress-cuts --cycles $(STRESS_CYCLES) --power-cuts

bench: bench-machine bench-wake bench-process bench-bandwidth bench-offload bench-devices ## All benchmarks

BENCH_MACHINE = $(CARGO) run --quiet --profile $(PROFILE) --bin bench_machine -- \
	--out $(BENCH_DIR) --rounds $(ROUNDS) --cycles $(CYCLES) \
	$(if $(FILLS),--fills $(FILLS)) $(if $(MODES),--modes $(MODES))

bench-machine: build ## Suspend-to-CXL and hibernation; goes on where it was interrupted (ROUNDS= CYCLES= FILLS= MODES=)
	@$(CARGO) build --quiet --profile $(PROFILE) --package dormouse-image --example copy_bench
	@$(BENCH_MACHINE)

publish-machine: build ## Put what bench-machine measured into docs/
	@$(BENCH_MACHINE) --no-run --publish

bench-scale: build ## Both ways to sleep and hibernation to persistent memory, 1 to 8 GiB of user memory (ROUNDS= CYCLES= FILLS= MODES=)
	@$(BENCH_MACHINE) --scale

publish-scale: build ## Put what bench-scale measured into docs/
	@$(BENCH_MACHINE) --scale --no-run --publish

bench-wake: build ## Waking: how soon a service's reads hit DRAM, hot-first against process order (ROUNDS=…)
	@mkdir -p $(BENCH_DIR)
	@$(CARGO) run --quiet --profile $(PROFILE) --bin bench_wake -- $(BENCH_DIR) $(ROUNDS)

BENCH_PROCESS = $(CARGO) run --quiet --profile $(PROFILE) --bin bench_process -- \
	--out $(BENCH_DIR) --rounds $(ROUNDS) $(if $(CASES),--cases $(CASES)) $(if $(or $(MAX_MIB),$(MOST)),--max-mib $(or $(MAX_MIB),$(MOST)))

bench-process: build ## Process persistence beside CRIU; goes on where it was interrupted (ROUNDS= CASES= MAX_MIB=)
	@$(BENCH_PROCESS)

publish-process: build ## Put what bench-process measured into docs/
	@$(BENCH_PROCESS) --no-run --publish

BENCH_BANDWIDTH = $(CARGO) run --quiet --profile $(PROFILE) --bin bench_bandwidth -- \
	--out $(BENCH_DIR) --rounds $(ROUNDS)

bench-bandwidth: setup ## Bandwidth control: the methods of Kämmerer 2025 and ours, simulated; time of a pass (ROUNDS=)
	@$(BENCH_BANDWIDTH)

publish-bandwidth: setup ## The same, and put the tables into docs/
	@$(BENCH_BANDWIDTH) --publish

bench-offload: build ## The virtual executor: instructions on a Cortex-M3, native and translated
	@$(DORMOUSE) offload bench --out $(BENCH_DIR)

BENCH_DEVICES = $(CARGO) run --quiet --profile $(PROFILE) --bin bench_devices -- \
	--out $(BENCH_DIR) --rounds $(ROUNDS)

bench-devices: build ## Suspend and resume of devices: list order, stock async, threshold, ours, in the lab (ROUNDS=)
	@$(DORMOUSE) lab build --devices
	@$(BENCH_DEVICES)

publish-devices: build ## Put what bench-devices measured into docs/
	@$(BENCH_DEVICES) --no-run --publish

check-offload: build ## The virtual executor against a big core, in full; goes on where it was interrupted (STATES= BLOCKS= INPUTS=)
	@offload/tests/full.sh out/check-offload $(DORMOUSE) $(STATES) $(BLOCKS) $(INPUTS)

test-kernels: build ## All checks on all stock kernels of the matrix; goes on where it was interrupted
	@$(LEFT_OUT) machine::kernels::

test-bandwidth-scheduler: build ## Limits by quotas and by our sched_ext scheduler against a device that counts, in an emulated machine
	@$(LEFT_OUT) bandwidth::scheduler::,bandwidth::lab::

publish-offload: build ## The same, and put the tables and the figure into docs/
	@$(DORMOUSE) offload bench --out $(BENCH_DIR) --publish docs

.PHONY: book
book: build ## The documentation as a book, out/book/html
	@scripts/book.sh $(DORMOUSE)

fmt: ## Format the Rust code
	@$(CARGO) fmt --all

lint: setup ## Format check, clippy, rustdoc, shell and kernel style, spelling, house words, links
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --quiet --profile $(PROFILE) --workspace --all-targets -- -D warnings
	@$(CARGO) clippy --quiet --profile $(PROFILE) --workspace --test end_to_end -- -D warnings
	@RUSTDOCFLAGS='-D warnings' $(CARGO) doc --quiet --profile $(PROFILE) --workspace --no-deps
	@scripts/lint.sh

deny: setup ## Licences, bans, sources and advisories of the crates (deny.toml)
	@scripts/deny.sh

clean: ## Remove what was built here (the cache in ~/.cache/dormouse stays)
	@$(CARGO) clean --quiet
	@rm -rf out

.PHONY: packages test-packages test-containers
packages: build ## Debian packages and a static tarball, into out/packages
	@scripts/setup.sh --for packages
	@DORMOUSE=$(DORMOUSE) packaging/build.sh

test-containers: build ## Containers on podman and containerd, jobs of Slurm, two nodes with one store, as root (DORMOUSE_TEST_LOSSES=20)
	@scripts/setup.sh --for containers
	@$(LEFT_OUT) end_to_end::containers::,process::lease::

test-packages: packages ## The packages in a clean system, and in the emulated machine under systemd, as root
	@$(DORMOUSE) lab build
	@$(LEFT_OUT) end_to_end::packages::
