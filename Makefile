# Weft. `make run` shows the main job, `make test` runs the tests; both install
# what they need first. `make help` lists the rest.
SHELL := /bin/bash
JOBS ?= $(shell nproc)
BUILD := build/release
PREFIX ?= $(HOME)/.local
export CCACHE_SLOPPINESS := pch_defines,time_macros
export CCACHE_BASEDIR := $(CURDIR)
# Clones share compiled files; only the paths in debug information may then be another clone's.
export CCACHE_NOHASHDIR := 1

.PHONY: all build deps run test test-all bench peers format lint install clean help asan tsan fuzz

all: build

deps:
	@deps/install.sh build

build: deps
	@test -f $(BUILD)/build.ninja || cmake --preset release >/dev/null
	@cmake --build --preset release -j $(JOBS)

run: build
	@scripts/run.sh

test: build
	@deps/install.sh test
	@scripts/test.sh

test-all: build
	@deps/install.sh test
	@WEFT_SLOW=1 scripts/test.sh

bench: build
	@$(BUILD)/weft bench run all

peers: deps
	@deps/install.sh peers

asan tsan: deps
	@deps/install.sh test
	@cmake --preset $@ >/dev/null && cmake --build --preset $@ -j $(JOBS) && ctest --preset $@ -j $(JOBS)

fuzz: deps
	@deps/install.sh test
	@scripts/fuzz.sh

format:
	@deps/install.sh lint
	@git ls-files '*.h' '*.cpp' | xargs clang-format-19 -i

lint: build
	@deps/install.sh lint
	@scripts/lint.sh

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	@rm -rf build

help:
	@echo 'make run       post-train SmolLM2, serve it, ask it a question (STEPS=n, KEEP=1)'
	@echo 'make test      build and run the tests;   make test-all   the slow ones too'
	@echo 'make asan|tsan the tests under sanitizers; make fuzz       the fuzzers'
	@echo 'make bench     benchmarks;                 make peers      install the programs they compare with'
	@echo 'make format|lint   make install PREFIX=dir   make clean'
