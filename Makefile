# Short names for what people do every day. CMake and its presets do the work.
.PHONY: release help demo check newcomer bench install deb tarball format fuzz clean
.DEFAULT_GOAL := release

missing = { echo "is something missing? try: scripts/install_deps.sh build" >&2; exit 1; }
refused = { echo "$(DESTDIR)$(or $(PREFIX),/usr/local) cannot be written: sudo make install, or make install PREFIX=..." >&2; exit 1; }

release: ## build build/weir (the default)
	@cmake --preset release >/dev/null || $(missing)
	@cmake --build build

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

demo: ## install what is missing, build, and put a question to the bundled model
	@scripts/demo.sh

check: ## install what is missing, build, and run every check and test (CI runs this)
	@scripts/check.sh

newcomer: ## run the README's commands in a fresh Debian 12 (root, debootstrap, network; as long as check and more)
	@scripts/newcomer.sh

bench: ## build, and time every kernel
	@scripts/bench.sh

# The unit file names the program's place, so the prefix must be known when it is made.
install: ## install under PREFIX (default /usr/local), below DESTDIR if it is set
	@cmake --preset release -DCMAKE_INSTALL_PREFIX="$(or $(PREFIX),/usr/local)" >/dev/null || $(missing)
	@cmake --build build
	cmake --install build || $(refused)

deb: ## build Debian packages in build-deb
	@scripts/make_deb.sh

tarball: ## build a program that runs from wherever it is unpacked, in build-tarball
	@scripts/make_tarball.sh

format: ## give every C file the house format
	@scripts/check_format.sh --fix

fuzz: ## run each fuzzer for FUZZ_SECONDS (default 60)
	@scripts/fuzz.sh

clean: ## remove all builds
	rm -rf build build-*
