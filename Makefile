# Short names for what people do every day. CMake and its presets do the work.
.PHONY: release help demo check bench install format fuzz clean
.DEFAULT_GOAL := release

release: ## build build/weir (the default)
	@cmake --preset release >/dev/null || { echo "is something missing? try: scripts/install_deps.sh build" >&2; exit 1; }
	@cmake --build build

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18

demo: ## install what is missing, build, and put a question to the bundled model
	@scripts/demo.sh

check: ## install what is missing, build, and run every check and test (CI runs this)
	@scripts/check.sh

bench: ## build, and time every kernel against its reference
	@scripts/bench.sh

install: release ## install under PREFIX (default /usr/local)
	cmake --install build --prefix "$(or $(PREFIX),/usr/local)"

format: ## give every C file the house format
	@scripts/check_format.sh --fix

fuzz: ## run each fuzzer for FUZZ_SECONDS (default 60)
	@scripts/fuzz.sh

clean: ## remove all builds
	rm -rf build build-*
