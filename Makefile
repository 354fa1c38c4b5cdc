# SPDX-License-Identifier: BSD-3-Clause
#
# make                 builds build/nbdspecd
# make conformance     runs the kit (SERVER=nbdkit, URI=nbd://..., ARGS=...)
# make check           the project's own tests; check-all: all of them
# make regress         what was reported in public: the scenarios' tests
# make mutants         broken servers, each of which some case has to notice
# make fuzz            libFuzzer over whole connections (SECONDS=60)
# make soak            what takes longer than CI has: 100,000 calls of each kind,
#                      1,000 ends of each, other machines' builds
# make bench           the benchmarks into build/bench (FULL=1, HOST=...)
#
# CC=gcc|clang  DEBUG=1  WERROR=1  SANITIZE=address,undefined|thread
# PYTHON=interpreter|no  GNUTLS=no  SETUP=no  VARIANT=name (a second build)

ifeq ($(origin CC),default)
CC = gcc
endif
PREFIX = /usr/local
VERSION := $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' \
    conformance/lib/nbdspec/version.py)

# Looked for when first needed: a fresh machine has none until ci/setup ran.
PYTHON = $(eval PYTHON := $$(or $$(shell ci/find-python embed),\
    $$(error run ci/setup run, or make PYTHON=no)))$(PYTHON)
KIT_PYTHON = $(eval KIT_PYTHON := $$(or $$(shell ci/find-python kit),\
    $$(error run ci/setup run)))$(KIT_PYTHON)
NBDSPEC = $(KIT_PYTHON) conformance/nbdspec

# Each sanitizer has its own objects and binary, so that they can live side by
# side; tests use the binary in $NBDSPECD.
ifdef SANITIZE
VARIANT = $(if $(findstring thread,$(SANITIZE)),tsan,$(if \
    $(findstring address,$(SANITIZE)),asan,ubsan))
endif
OBJ = build/obj$(if $(VARIANT),-$(VARIANT))
OUT = build$(if $(VARIANT),/$(VARIANT))
BIN = $(OUT)/nbdspecd

OPT = $(if $(DEBUG),-O0 -g3,$(if $(SANITIZE),-O1 -g,-O2 -g))
WARN = -Wall -Wextra -Wshadow -Wconversion $(if $(WERROR),-Werror)
SANFLAGS = $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer \
    -fno-sanitize-recover=all)
DEFS = -D_GNU_SOURCE -DNBDSPEC_VERSION='"$(VERSION)"'
LIBS = -ldl -lm

SRC = $(wildcard server/*.c)
ifneq ($(value PYTHON),no)
SRC += $(wildcard server/python/*.c)
PYFLAGS = $(eval PYFLAGS := $$(shell $(PYTHON) ci/python-flags compile) \
    -DPYTHON_EXECUTABLE='"$$(shell $(PYTHON) ci/python-flags executable)"'\
    )$(PYFLAGS)
LIBS += $(shell $(PYTHON) ci/python-flags link)
else
DEFS += -DNO_PYTHON
endif
ifneq ($(GNUTLS),no)
TLSFLAGS = $(eval TLSFLAGS := $$(shell pkg-config --cflags gnutls) \
    -DHAVE_GNUTLS)$(TLSFLAGS)
LIBS += $(shell pkg-config --libs gnutls)
endif

COMPILE = $(CC) -std=c11 $(OPT) $(WARN) -pthread $(SANFLAGS) $(DEFS) $(TLSFLAGS) \
    -Iserver $(CFLAGS)
# -rdynamic: extension modules take libpython's symbols from the program
LINK = $(CC) $(OPT) -pthread $(SANFLAGS) -rdynamic $(LDFLAGS)
# what the benchmarks measure against, and with
BENCH_PROGRAMS = build/limit build/connect $(if \
    $(filter no,$(value GNUTLS)),,build/tls_reads)
OBJS = $(SRC:server/%.c=$(OBJ)/%.o) $(if $(SANITIZE),$(OBJ)/sanitizers.o)

# tests of the bridge for what no client can see
BRIDGE_TEST = $(if $(filter no,$(value PYTHON)),,$(OUT)/bridge-test)
BRIDGE_TEST_OBJS = $(patsubst server/%.c,$(OBJ)/%.o,\
    $(wildcard server/tests/bridge_*.c))

.PHONY: all
all: $(BIN) $(BENCH_PROGRAMS)

# V=1 shows the commands
$(V).SILENT: $(BIN) $(OBJS) $(BENCH_PROGRAMS) $(BRIDGE_TEST) $(BRIDGE_TEST_OBJS)

$(BIN): $(OBJS)
	@mkdir -p $(@D)
	@echo '  LINK  $@'
	$(LINK) -o $@ $(OBJS) $(LIBS)

$(OBJ)/python/%.o: server/python/%.c $(OBJ)/flags
	@mkdir -p $(@D)
	@echo '  CC    $@'
	$(COMPILE) $(PYFLAGS) -MMD -MP -c -o $@ $<

$(OBJ)/%.o: server/%.c $(OBJ)/flags
	@mkdir -p $(@D)
	@echo '  CC    $@'
	$(COMPILE) -MMD -MP -c -o $@ $<

$(OBJ)/sanitizers.o: ci/sanitizers.c $(OBJ)/flags
	@echo '  CC    $@'
	$(COMPILE) -c -o $@ $<

$(OUT)/bridge-test: $(BRIDGE_TEST_OBJS) $(filter-out $(OBJ)/main.o,$(OBJS))
	@mkdir -p $(@D)
	@echo '  LINK  $@'
	$(LINK) -o $@ $^ $(LIBS)

$(OBJ)/tests/%.o: server/tests/%.c $(OBJ)/flags
	@mkdir -p $(@D)
	@echo '  CC    $@'
	$(COMPILE) $(PYFLAGS) -MMD -MP -c -o $@ $<

$(BENCH_PROGRAMS): build/%: regress/scenarios/%.c server/wire.h
	@mkdir -p $(@D)
	@echo '  CC    $@'
	$(CC) -std=c11 -O2 -g $(WARN) -pthread -D_GNU_SOURCE -Iserver -o $@ $< \
	    $(if $(findstring tls,$@),$(shell pkg-config --cflags --libs gnutls))

# Rewritten only when the flags differ from the last build's.
define FLAGS
$(COMPILE) $(PYFLAGS)
endef
$(OBJ)/flags: force
	$(shell mkdir -p $(@D))$(file >$@.new,$(FLAGS))
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

-include $(OBJS:.o=.d) $(BRIDGE_TEST_OBJS:.o=.d)

# Targets that run something install what they need first, then start over:
# only after that can make know which interpreter there is.
PARALLEL = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(shell nproc))

.PHONY: conformance check check-all mutants regress bench bench-docs fuzz soak
conformance:
	ci/setup run $(if $(filter-out nbdspecd,$(SERVER)),report)
	$(MAKE) $(PARALLEL) all
	$(MAKE) run-conformance

check check-all mutants regress:
	ci/setup check
	$(MAKE) $(PARALLEL) all
	$(MAKE) run-$@

bench:
	ci/setup bench
	$(MAKE) $(PARALLEL) all
	$(MAKE) run-bench

# SECONDS of libFuzzer over whole connections
fuzz:
	ci/setup fuzz
	ci/fuzz/run libfuzzer $(or $(SECONDS),60)

soak:
	ci/setup check
	ci/setup soak
	$(MAKE) run-soak
	ci/foreign

# The tables of docs/bench, from the last make bench FULL=1.
bench-docs:
	mkdir -p docs/bench
	cp build/bench/*.md build/bench/*.svg docs/bench

.PHONY: run-conformance run-quick run-check run-check-all run-mutants run-bench \
    run-regress
run-%: export NBDSPECD = $(CURDIR)/$(BIN)
# time limits are guards against hanging; a sanitizer slows what it watches
run-%: export NBDSPEC_TIME_FACTOR ?= $(if $(SANITIZE),4,1)
run-conformance:
	$(NBDSPEC) server $(if $(URI),--uri '$(URI)',--target \
	    $(or $(SERVER),nbdspecd)) $(ARGS)

TESTS = $(wildcard server/tests conformance/selftest regress/bugs regress/*/tests)
run-quick:
	$(NBDSPEC) server --quick --quiet
	$(NBDSPEC) server --quick --quiet --section plugin

run-mutants:
	PYTHONPATH=conformance/lib $(KIT_PYTHON) -m nbdspec.mutants_run $(ARGS)

run-check: $(BRIDGE_TEST)
	$(MAKE) run-quick
	$(KIT_PYTHON) -m pytest -n $(shell nproc) -m 'not slow' $(TESTS) $(ARGS)

run-regress:
	$(KIT_PYTHON) -m pytest -n $(shell nproc) \
	    $(filter regress/%,$(TESTS)) $(ARGS)

CALLS = 100000
RUNS = 1000
run-soak: $(BIN) $(BRIDGE_TEST)
	ci/soak $(BRIDGE_TEST) $(CALLS) $(RUNS)

run-bridge: $(BRIDGE_TEST)
	$(KIT_PYTHON) -m pytest -q server/tests/test_bridge.py $(ARGS)

run-check-all: $(BRIDGE_TEST)
	$(MAKE) $(PARALLEL) SANITIZE=address,undefined all
	PYTHONMALLOC=malloc $(MAKE) SANITIZE=address,undefined run-quick \
	    run-bridge
	$(MAKE) $(PARALLEL) SANITIZE=thread all
	$(MAKE) SANITIZE=thread run-quick run-bridge
	$(MAKE) $(PARALLEL) CC=clang WERROR=1 VARIANT=clang all
	ci/fuzz/run replay
	$(KIT_PYTHON) ci/fuzz/sweep
	$(NBDSPEC) server --slow --quiet
	$(NBDSPEC) server --slow --quiet --section plugin
	$(MAKE) run-mutants ARGS='--every 12'
	$(KIT_PYTHON) -m pytest -n $(shell nproc) $(TESTS) $(ARGS)

run-bench:
	$(NBDSPEC) bench $(or $(NAME),all) $(if $(HOST),--host $(HOST)) \
	    $(if $(FULL),--full) $(ARGS)

.PHONY: install uninstall
SHARE = $(DESTDIR)$(PREFIX)/share/nbdspec
MAN = $(DESTDIR)$(PREFIX)/share/man
INSTALLED = conformance pyplugins regress LICENSE
install: all
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/libexec/nbdspec'
	install -m 755 $(BIN) '$(DESTDIR)$(PREFIX)/bin/nbdspecd'
	install -m 755 $(BENCH_PROGRAMS) '$(DESTDIR)$(PREFIX)/libexec/nbdspec'
	install -d '$(MAN)/man1'
	install -m 644 docs/man/*.1 '$(MAN)/man1'
	install -d '$(SHARE)'
	cp -R $(INSTALLED) '$(SHARE)'
	install -d '$(SHARE)/ci'
	install -m 755 ci/make-pki '$(SHARE)/ci'
	find '$(SHARE)' -name __pycache__ -prune -exec rm -r {} +
	ln -sf ../share/nbdspec/conformance/nbdspec '$(DESTDIR)$(PREFIX)/bin/nbdspec'

uninstall:
	rm -f '$(DESTDIR)$(PREFIX)/bin/nbdspecd' '$(DESTDIR)$(PREFIX)/bin/nbdspec'
	cd docs/man && for page in *.1; do rm -f '$(MAN)'/man1/$$page; done
	rm -rf '$(DESTDIR)$(PREFIX)/libexec/nbdspec' '$(SHARE)'

.PHONY: force clean
clean:
	rm -rf build
