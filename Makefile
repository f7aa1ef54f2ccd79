# The verbs of the project.

APP ?= upf
# User to whom `make agent` offers the interfaces of `make run`. Where it runs, IO is `agent` for
# whoever is not root.
AGENT_USER ?= $(shell id -u)
IO ?= $(if $(and $(wildcard /run/fastlane-lab/agent.sock),$(filter-out 0,$(shell id -u)),$(filter upf,$(APP))),agent,af-xdp)
SOAK_SECONDS ?= 600
CARGO ?= cargo
# Network namespaces and steering programs take root.
AS_ROOT := $(if $(filter 0,$(shell id -u)),,sudo -E)

PACKAGES = ip=iproute2 ping=iputils-ping tcpdump=tcpdump ethtool=ethtool curl=curl python3=python3 \
	valgrind=valgrind cc=gcc nsenter=util-linux setpriv=util-linux prlimit=util-linux \
	sysctl=procps bpftool=bpftool pkg-config=pkg-config dpdk-testpmd=dpdk-dev tshark=tshark \
	dnsmasq=dnsmasq-base conntrack=conntrack nft=nftables \
	/usr/include/dpdk/rte_ethdev.h=libdpdk-dev g++=g++ \
	/usr/share/python-wheels=python3-venv busybox=busybox-static openssl=openssl
RUN_PACKAGES = iperf3=iperf3
CHECK_PACKAGES = clang=clang llvm-strip=llvm /usr/include/bpf/bpf_helpers.h=libbpf-dev

.DEFAULT_GOAL := help
.PHONY: help run agent test test-k8s k8s test-lab test-arm64 check bench bless-instructions soak miri fresh dpdk-plugin \
	install-packages clean-lab

# Tests are built as the user and run as root, who finds the programs of the cluster and the images of
# guests here.
export FASTLANE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/fastlane
TESTS = CARGO="$(CARGO)" AS_ROOT="$(AS_ROOT)" lab/run-tests
# Where these are not built, the stories on a cluster and in guests are skipped by name.
test: export FASTLANE_SKIPS := $(FASTLANE_SKIPS),kubernetes,lab/*
# Stories in guests for which this time is too short are skipped by name; make test-lab runs all.
test: export FASTLANE_GUEST_SECONDS ?= 1000

# What make run builds and runs: the UPF, or with APP=macswap that between two hosts.
RUN_upf = -p upf -p peer -p fastlane-cli -p fastlane --example all_kernel
LAB_upf = lab/upf
RUN_macswap = -p macswap -p traffic -p fastlane-cli
LAB_macswap = lab/run

# Where cargo puts programs; the plugin for DPDK is looked for beside them.
BUILT = $${CARGO_TARGET_DIR:-target}

help: ## Lists the verbs
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24
	@echo "APP=upf (or macswap) says what make run runs,"
	@echo "IO=af-xdp (or af-xdp-native, af-xdp-generic, af-packet, of the UPF also socket)"
	@echo "says what make run runs on."

run: install-packages ## Runs the UPF between a gNB and a data network and shows it live: make run IO=af-packet
	@lab/packages $(RUN_PACKAGES)
	$(CARGO) build --release --bins $(RUN_$(APP))
	$(if $(filter agent,$(IO)),,$(AS_ROOT)) $(LAB_$(APP)) $(IO)

agent: install-packages ## Offers an ordinary user the interfaces of make run: after it, it needs no privilege
	@lab/packages $(RUN_PACKAGES)
	$(CARGO) build --release --bins $(RUN_$(APP))
	$(AS_ROOT) lab/agent $(AGENT_USER)

# Programs are built together with the tests: alone they would be built with fewer features of some
# packages, and then a second time.
test: install-packages ## Everything: unit tests, properties, stories in network namespaces
	$(CARGO) build --workspace --lib --bins --tests --examples
	crates/dpdk/plugin/build $(BUILT)/debug
	crates/dpdk/plugin/build $(BUILT)/release
	$(TESTS)

test-k8s: install-packages k8s ## The stories on a Kubernetes cluster of one node, in namespaces of its own
	$(CARGO) build --workspace --lib --bins --tests --examples
	$(TESTS) --only tests/kubernetes

k8s: ## Builds the programs of that cluster into the user's cache: 10 to 20 minutes
	lab/k8s/build
	lab/prometheus

# The images take a minute and 400 MB of the user's cache.
test-lab: install-packages ## Stories in emulated machines: NICs under DPDK and AF_XDP, SR-IOV, Linux 6.1 to the newest
	lab/guest/build
	$(CARGO) build --workspace --lib --bins --tests --examples
	crates/dpdk/plugin/build $(BUILT)/debug
	$(TESTS) --only tests/lab

# The compiler takes a minute and 800 MB of the user's cache.
test-arm64: install-packages ## Unit tests for arm64, on a processor that QEMU emulates
	lab/arm64/build compiler
	$(AS_ROOT) env CARGO="$(CARGO)" lab/arm64/test

check: install-packages ## Format, lints, generated files, licences, the other architecture
	@lab/packages $(CHECK_PACKAGES)
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet --workspace --no-deps
	lab/build-bpf --check $$(git ls-files '*.bpf.c')
	$(CARGO) run --quiet -p macswap -- --schema | diff -u fastlane.schema.json -
	$(CARGO) run --quiet -p upf -- schema | diff -u apps/upf/upf.schema.json -
	$(CARGO) run --quiet -p fastlane-cli -- agent --schema | diff -u agent.schema.json -
	bench/index | diff -u bench/results/README.md -
	k8s/values-schema | diff -u k8s/chart/values.schema.json -
	for name in fastlane upf; do \
		k8s/dashboards $$name | diff -u k8s/chart/dashboards/$$name.json - || exit 1; done
	$(CARGO) test --quiet -p fastlane-tests --test tidy
	lab/licences
	lab/cross-check aarch64-unknown-linux-gnu

bench: install-packages ## The figures: cost of the framework, rivals, idle policies
	$(CARGO) build --release --workspace
	$(CARGO) rustc --release -p fastlane-capi --lib --crate-type staticlib
	crates/dpdk/plugin/build $(BUILT)/release
	$(AS_ROOT) $(BUILT)/release/fastlane-bench
	$(AS_ROOT) bench/upf-control --programs $(BUILT)/release --results bench/results
	bench/index --write

bless-instructions: install-packages ## Commits to the instructions per packet as they are now: make bless-instructions ROWS=burst-32
	$(CARGO) run --quiet --release -p fastlane-bench --bin instructions --no-default-features -- bless bench/instructions.json $(ROWS)

soak: install-packages k8s ## The long forms: ten million frames without loss, fuzzing
	lab/guest/build
	$(CARGO) build --profile soak --workspace --bins
	crates/dpdk/plugin/build $(BUILT)/soak
	crates/dpdk/plugin/build $(BUILT)/release
	FASTLANE_SOAK=1 $(TESTS) --profile soak
	for target in $$(ls fuzz/corpus); do fuzz/run $$target $(SOAK_SECONDS) || exit 1; done
	$(MAKE) fresh PART=short

# Miri has no memfd: memory is on the heap there, and what attaches by a descriptor is left out.
miri: ## Runs what lends the memory of tables under Miri; needs a nightly toolchain with miri
	MIRIFLAGS="-Zmiri-disable-isolation" $(CARGO) +nightly miri test -p fastlane-table --test lending

fresh: ## Runs and tests a clone of HEAD on a minimal Debian in a chroot (PART=short: a few stories)
	$(AS_ROOT) env TOOLCHAIN="$$(rustc --print sysroot)" lab/fresh $(PART)

dpdk-plugin: ## Builds what the driver dpdk needs, for releases (PREFIX=/usr/local installs it)
	@lab/packages cc=gcc pkg-config=pkg-config /usr/include/dpdk/rte_ethdev.h=libdpdk-dev
	crates/dpdk/plugin/build $(if $(PREFIX),$(DESTDIR)$(PREFIX)/lib/fastlane,$(BUILT)/release)

install-packages: ## Installs the Debian packages that are missing
	@lab/packages $(PACKAGES)

clean-lab: ## Removes what an interrupted run has left
	$(AS_ROOT) lab/clean
