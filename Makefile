# blasd. `make help` lists the targets. Build variants live in folders of their own:
#   make BUILD=build/asan SANITIZE=address,undefined build/asan/blasd
#
## Use
## make              build/blasd (the service, with its CPU kernels) and the C client's library
## make cuda         build/blasd_cuda.so, the CUDA backend, beside it (needs a CUDA toolkit; minutes)
## make demo         from nothing: installs, builds build/blasd, starts it, sends four jobs, checks the answers
## make test         from nothing: installs, builds, runs the tests of every feature (below ten minutes on two cores)
## make install      DESTDIR= PREFIX=/usr/local: the program, the C client, manual pages, a systemd unit; also uninstall
## make clean        removes what was built; virtual environments of the tests stay (make distclean removes them, too)
##
## Develop
## make check        builds what changed, runs the quick unit programs and the thirty tests that a user would miss first
## make test-all     everything that needs no GPU: make test, sanitizers, every schedule, attacks, kills, packages, disks
## make lint         style, floors, warnings with gcc and clang
## make generated    writes anew what is generated from the code's tables and committed (docs, api)
## make new-op       NAME=name: the folder of a new operation, which builds and passes its tests
## make mutants      ARGS="--room queue -n 20": changes one operator at a time, says whether the room's tests notice
## make bench        measurements (bench/README.md); ARGS="--quick --only json-256" passes options on
## make test-gpu     on a machine with a GPU: conformance, leaks, benchmarks
## make fuzz         the fuzzers, FUZZ_SECONDS (60) each
## make chaos        kills, stops and fills a service under load; ARGS="--kills 10000", "--seconds 600 --seed N", "--disk 96" (may mount)
## make attack       what hostile clients do, SCALE (10) times as much as in make test-all
## make soak         the load tests for a minute each, then half an hour in which memory must be flat; ARGS="--seconds 600"
## make analyze      gcc -fanalyzer, clang-tidy, cppcheck; make test-thread: threads under ThreadSanitizer
##
## Release
## make deb          build/deb: Debian packages; make test-deb tries them (needs root)
## make wheels       build/wheels: the Python client, and the service for pip; make test-wheels tries them (needs root)
## make test-fresh   `make demo` and `make test` in a bare root (needs root)
## make test-image   builds and runs the container image (needs root)
##
## Variables: BUILD, CC, CXX, SANITIZE, NVCC (empty: no CUDA), TEST_JOBS (tests at a time).
BUILD ?= build
SANITIZE ?=
CC = gcc
CXX = g++
OBJCOPY ?= objcopy
PYTHON ?= /usr/bin/python3

PACKAGES = libmicrohttpd gnutls jansson hiredis libsodium librhonabwy libcurl libseccomp zlib
# hiredis has TLS from 1.0 on, in a library of its own
REDIS_TLS := $(shell pkg-config --exists hiredis_ssl openssl 2>/dev/null && echo 1)
PACKAGES += $(if $(REDIS_TLS),hiredis_ssl openssl)
WARN = -Wall -Wextra -Wpointer-arith -Wshadow -Wundef -Wvla -Wformat=2 -Wcast-align \
       -Wconversion -Wno-sign-conversion -Wfloat-conversion
WARN_C = -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
OPT ?= -O2 -g
# GCC clears and copies structs of kilobytes with rep stos and rep movs, which take eight bytes at a time where libc
# takes 64; clang calls libc for that, and knows no such option
STRINGS = -mmemset-strategy=unrolled_loop:128:noalign,libcall:-1:noalign
STRINGS += -mmemcpy-strategy=unrolled_loop:128:noalign,libcall:-1:noalign
STRINGS := $(shell $(CC) $(STRINGS) -E -x c /dev/null >/dev/null 2>&1 && echo '$(STRINGS)')
# tests/integration/test_hardening.py reads from the program that all of this is in it
HARDEN = -fstack-protector-strong -fstack-clash-protection -fno-strict-overflow
HARDEN += $(if $(filter x86_64,$(shell uname -m)),-fcf-protection) $(if $(SANITIZE),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)
LDFLAGS += -Wl,-z,relro,-z,now,-z,noexecstack
FLAGS = -Isrc -I. -I$(BUILD)/gen -D_GNU_SOURCE $(OPT) $(STRINGS) $(WARN) $(HARDEN) $(WERROR) -MMD -MP -fPIC -pthread
ifneq ($(SANITIZE),)
FLAGS += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=undefined
LDFLAGS += -fsanitize=$(SANITIZE)
endif
CFLAGS = -std=c17 $(FLAGS) $(WARN_C) $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
CXXFLAGS = -std=c++17 $(FLAGS) -fno-exceptions -fno-rtti
LIBS = $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) -llapacke -lopenblas -lstdc++ -ldl -lm

# The floors, lowest first: an archive links with those before it.
FLOORS = base core wire store redis auth trace outgoing queue oip http worker
KERNEL_C = $(filter-out kernels/cuda/%,$(wildcard kernels/*/*.c))
# graph is no folder: src/core/graph.c
OPS = $(sort $(patsubst op_%.c,%,$(notdir $(wildcard kernels/*/op_*.c)))) graph
CPU_KERNELS = $(sort $(patsubst cpu_%.c,%,$(notdir $(wildcard kernels/*/cpu_*.c))))

obj = $(patsubst %,$(BUILD)/obj/%.o,$(1))
folder_sources = $(wildcard src/$(1)/*.c src/$(1)/*.cc)
ARCHIVES = $(FLOORS:%=$(BUILD)/lib/%.a) $(BUILD)/lib/kernels.a $(BUILD)/lib/cli.a $(BUILD)/lib/client.a
GENERATED = $(BUILD)/gen/ops.c $(BUILD)/gen/cpu_kernels.c $(BUILD)/gen/functions_lua.h $(BUILD)/gen/openapi_json.h $(BUILD)/gen/pages.h $(BUILD)/gen/console.h $(BUILD)/gen/version.h

.PHONY: all help FORCE
.DELETE_ON_ERROR: # half of a generated file is none
all: $(BUILD)/blasd $(BUILD)/libblasd_client.a toolkit
help:
	@sed -n 's/^## \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

# What lists of files are made into is looked at each time and written where it has changed: a file that is gone must be
# seen, too, and no rule of times would.
comma = ,
write_if_changed = @mkdir -p $(@D); $(1) >$@.new; if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
# One object in which only what the header declares is global, so that it meets no name of a program's.
$(BUILD)/libblasd_client.a: $(BUILD)/lib/client.a clients/c/blasd.h deploy/install/exports.sh
	@mkdir -p $(BUILD)/obj
	@deploy/install/exports.sh clients/c/blasd.h names >$(BUILD)/obj/client.names
	$(LD) -r -o $(BUILD)/obj/client.whole.o --whole-archive $<
	$(OBJCOPY) --keep-global-symbols=$(BUILD)/obj/client.names $(BUILD)/obj/client.whole.o
	@rm -f $@
	ar rcs $@ $(BUILD)/obj/client.whole.o

$(BUILD)/blasd: $(BUILD)/lib/main.a $(ARCHIVES)
	$(CC) $(LDFLAGS) -pthread -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS)

# archive NAME,OBJECTS: made anew when an object of it is, and when one is no longer among them
define archive
$(BUILD)/lib/$(1).list: OBJECTS = $(2)
$(BUILD)/lib/$(1).a: $(2)
endef
$(foreach f,$(FLOORS) main,$(eval $(call archive,$(f),$(call obj,$(call folder_sources,$(f))))))
$(eval $(call archive,kernels,$(call obj,$(KERNEL_C)) $(BUILD)/obj/gen/ops.c.o $(BUILD)/obj/gen/cpu_kernels.c.o))
$(eval $(call archive,client,$(call obj,$(wildcard clients/c/*.c))))
$(eval $(call archive,cli,$(call obj,$(wildcard clients/cli/*.c))))
$(BUILD)/lib/%.list: FORCE
	$(call write_if_changed,echo $(OBJECTS))
$(BUILD)/lib/%.a: $(BUILD)/lib/%.list
	@rm -f $@
	ar rcs $@ $(filter %.o,$^)

$(BUILD)/obj/%.c.o: %.c | $(GENERATED)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@
$(BUILD)/obj/%.cc.o: %.cc | $(GENERATED)
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -c $< -o $@
$(BUILD)/obj/gen/%.c.o: $(BUILD)/gen/%.c
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@
$(BUILD)/obj/src/redis/%.c.o: FLAGS += $(if $(REDIS_TLS),-DBLASD_REDIS_TLS)
# Kernels are arithmetic: they get what lets loops become vectors and changes no rounding.
$(BUILD)/obj/kernels/%.c.o: OPT = -O3 -g
$(BUILD)/obj/kernels/%.c.o: FLAGS += -fno-math-errno -fno-trapping-math -ffp-contract=off

# what a GPU makes to the same bits
$(BUILD)/obj/src/core/rule.c.o: FLAGS += -O3 -fno-math-errno -fno-trapping-math -ffp-contract=off

# A folder kernels/NAME with op_NAME.c is an operation; one with cpu_NAME.c runs on the CPU.
$(BUILD)/gen/ops.c: FORCE
	$(call write_if_changed,{ mk/table.sh core/op.h 'struct blasd_op' blasd_op 'struct blasd_op' blasd_ops -- $(OPS); \
	    echo '_Static_assert($(words $(OPS)) <= BLASD_OPS_MOST$(comma) "raise BLASD_OPS_MOST in core/op.h");'; })
$(BUILD)/gen/cpu_kernels.c: FORCE
	$(call write_if_changed,mk/table.sh kernels/cpu/cpu.h 'struct blasd_kernel' blasd_cpu 'struct blasd_kernel' blasd_cpu_kernels -- $(CPU_KERNELS))
# one text, in this order: a function may use what stands above it
FUNCTIONS_LUA = $(patsubst %,src/queue/functions/%.lua,contract state metas running batch_entries records events ended webhooks kept tensors completions giving recovery front_ends submit listing turn workers register)
$(BUILD)/gen/functions_lua.h: $(FUNCTIONS_LUA) mk/worker-acl.sh Makefile
	@mkdir -p $(@D)
	@{ mk/bytes.sh functions_lua $(FUNCTIONS_LUA); mk/worker-acl.sh $(FUNCTIONS_LUA); } >$@
$(BUILD)/gen/version.h: VERSION
	@mkdir -p $(@D)
	@echo '#define BLASD_VERSION "'$$(cat VERSION)'"' >$@
$(BUILD)/gen/openapi_json.h: api/openapi.json mk/page.sh
	@mkdir -p $(@D)
	@mk/page.sh openapi_json $< >$@
$(BUILD)/gen/pages.h: api/docs.html api/style.css mk/page.sh
	@mkdir -p $(@D)
	@{ mk/page.sh docs_html api/docs.html; mk/page.sh style_css api/style.css; } >$@
$(BUILD)/gen/console.h: $(wildcard src/http/console/*.*) mk/console.sh mk/console.awk mk/page.sh
	@mkdir -p $(@D)
	@mk/console.sh src/http/console >$@

# in this order: a list in a prerequisite must be known when it is read
include mk/cuda.mk mk/fuzz.mk mk/bench.mk mk/tests.mk mk/analyze.mk mk/install.mk

# Files generated from tables in the code and committed, because people read them where they lie.
GENERATED_DOCS = api/errors.json api/operations.json docs/errors.md docs/limits.md docs/metrics.md docs/operations.md docs/warnings.md
$(BUILD)/generate: $(BUILD)/obj/docs/generate.c.o $(BUILD)/lib/wire.a $(BUILD)/lib/kernels.a $(BUILD)/lib/core.a $(BUILD)/lib/base.a
	$(CC) $(LDFLAGS) -pthread -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS)
.PHONY: generated check-generated
generated: $(BUILD)/generate
	@for f in $(GENERATED_DOCS); do $< $$(basename $$f) > $$f; done
	@$(PYTHON) api/generate.py
	@$(PYTHON) clients/python/generate.py
	@$(PYTHON) clients/c/generate.py
check-generated: $(BUILD)/generate
	@for f in $(GENERATED_DOCS); do $< $$(basename $$f) | cmp -s - $$f || { echo "$$f is stale: run make generated"; exit 1; }; done
	@$(PYTHON) api/generate.py --check
	@$(PYTHON) clients/python/generate.py --check
	@$(PYTHON) clients/c/generate.py --check

.PHONY: new-op
new-op:
	@mk/new-op.sh "$(NAME)"

# Everything from nothing: these install what is missing first.
.PHONY: demo test check test-all lint
demo:
	@deploy/install-packages.sh build demo
	@echo 'blasd: building $(BUILD)/blasd (two to four minutes on two cores, where nothing is built yet)'
	@$(MAKE) --no-print-directory -j2 -s $(BUILD)/blasd
	@deploy/demo.sh
	@$(MAKE) --no-print-directory -s toolkit

# Each layer of tests is a part of the next; tests/pytest.ini says what the marks mean that divide them.
test:
	@deploy/install-packages.sh build demo test
	@$(MAKE) --no-print-directory -j2 -s all test-programs
	+@MAKE="$(MAKE)" TESTED="make test" tests/run-suites.sh test-unit test-integration
check:
	@$(MAKE) --no-print-directory -j2 -s all check-programs
	+@MAKE="$(MAKE)" TESTED="make check" tests/run-suites.sh check-unit check-integration
# the sanitized programs, which never wait, beside the tests that do
test-all:
	@deploy/install-packages.sh build demo test
	@$(MAKE) --no-print-directory -j2 -s all test-programs
	+@MAKE="$(MAKE)" TESTED="make test-all" tests/run-suites.sh test-unit test-everything --beside test-sanitized $(if $(NVCC),test-device-code)

lint:
	@deploy/install-packages.sh build test lint
	@$(PYTHON) .ci/lint.py
	@cd clients/python && mypy --cache-dir=/dev/null --no-error-summary blasd
	@clang-format --dry-run -Werror $$(git ls-files -co --exclude-standard '*.c' '*.h' '*.def' '*.cc' '*.cu' '*.cuh')
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/lint-gcc WERROR=-Werror OPT=-O1 lint-objects
	@$(PYTHON) .ci/objects.py build/lint-gcc
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/lint-clang CC=clang CXX=clang++ WERROR=-Werror OPT=-O1 lint-objects
	@$(MAKE) --no-print-directory -s -j2 BUILD=build/lint-gcc WERROR=-Werror OPT=-O1 check-generated

# The environments of Python programs that others wrote take minutes to install, and belong to no build.
.PHONY: clean distclean
clean:
	@if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name '*-venv*' -exec rm -rf {} +; fi
distclean:
	rm -rf build

.SECONDARY:
-include $(shell find $(BUILD) -name '*-venv*' -prune -o -type f -name '*.d' -print 2>/dev/null)
