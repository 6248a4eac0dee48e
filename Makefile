# blasd. `make help` lists the targets. Build variants live in folders of their own:
#   make BUILD=build/asan SANITIZE=address,undefined build/asan/blasd
#
## make              build/blasd and, where a CUDA toolkit is found, the CUDA backend beside it (minutes)
## make demo         from nothing: installs, builds build/blasd, starts it, sends four jobs, checks the answers
## make test         from nothing: installs, builds, runs every test that needs no GPU
## make lint         style, floors, warnings with gcc and clang
## make bench        measurements (bench/README.md); ARGS="--quick --only json-256" passes options on
## make test-gpu     on a machine with a GPU: conformance, leaks, benchmarks
## make fuzz         the fuzzers, FUZZ_SECONDS (60) each
## make soak         the load tests for a minute each
## make test-fresh   `make demo` and `make test` in a bare root (needs root)
## make test-image   builds and runs the container image (needs root)
## make generated    writes anew what is generated from the code's tables and committed (docs, api)
## make clean        removes build/
##
## Parts of make test: test-unit, test-sanitized, test-integration. Variables: BUILD, CC, CXX, SANITIZE, NVCC (empty: no CUDA).
BUILD ?= build
SANITIZE ?=
CC = gcc
CXX = g++
PYTHON ?= /usr/bin/python3

PACKAGES = libmicrohttpd jansson hiredis libcurl
WARN = -Wall -Wextra -Wpointer-arith -Wshadow -Wundef -Wvla -Wformat=2 -Wcast-align \
       -Wconversion -Wno-sign-conversion -Wfloat-conversion
WARN_C = -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition
OPT ?= -O2 -g
HARDEN = -fstack-protector-strong -fno-strict-overflow
FLAGS = -Isrc -I. -I$(BUILD)/gen -D_GNU_SOURCE $(OPT) $(WARN) $(HARDEN) $(WERROR) -MMD -MP -fPIC -pthread
ifneq ($(SANITIZE),)
FLAGS += -fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=undefined
LDFLAGS += -fsanitize=$(SANITIZE)
endif
CFLAGS = -std=c17 $(FLAGS) $(WARN_C) $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
CXXFLAGS = -std=c++17 $(FLAGS) -fno-exceptions -fno-rtti
LIBS = $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) -llapacke -lopenblas -lstdc++ -ldl -lm

# The floors, lowest first: an archive links with those before it.
FLOORS = base core wire store queue http worker
KERNEL_C = $(filter-out kernels/cuda/%,$(wildcard kernels/*/*.c))
OPS = $(sort $(patsubst op_%.c,%,$(notdir $(wildcard kernels/*/op_*.c))))
CPU_KERNELS = $(sort $(patsubst cpu_%.c,%,$(notdir $(wildcard kernels/*/cpu_*.c))))

obj = $(patsubst %,$(BUILD)/obj/%.o,$(1))
folder_sources = $(wildcard src/$(1)/*.c src/$(1)/*.cc)
ARCHIVES = $(FLOORS:%=$(BUILD)/lib/%.a) $(BUILD)/lib/kernels.a $(BUILD)/lib/client.a
GENERATED = $(BUILD)/gen/ops.c $(BUILD)/gen/cpu_kernels.c $(BUILD)/gen/functions_lua.h $(BUILD)/gen/openapi_json.h $(BUILD)/gen/version.h

.PHONY: all help FORCE
all: $(BUILD)/blasd $(BUILD)/libblasd_client.a
help:
	@sed -n 's/^## \{0,1\}//p' $(firstword $(MAKEFILE_LIST))

# What lists of files are made into is looked at each time and written where it has changed: a file that is gone must be
# seen, too, and no rule of times would.
comma = ,
write_if_changed = @mkdir -p $(@D); $(1) >$@.new; if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(BUILD)/libblasd_client.a: $(BUILD)/lib/client.a
	@cp $< $@
# the C client's examples, and a program that tests drive
CLIENT_PROGRAMS = $(BUILD)/client_example $(BUILD)/share_example $(BUILD)/share_probe
$(BUILD)/client_example $(BUILD)/share_example: $(BUILD)/%: $(BUILD)/obj/clients/c/examples/%.c.o $(BUILD)/libblasd_client.a
CLIENT_C = $(wildcard clients/c/examples/*.c tests/integration/*.c)
$(BUILD)/share_probe: $(BUILD)/obj/tests/integration/share_probe.c.o $(BUILD)/libblasd_client.a
$(CLIENT_PROGRAMS):
	$(CC) $(LDFLAGS) -o $@ $^ $(shell pkg-config --libs libcurl jansson) -pthread

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
# Kernels are arithmetic: they get what lets loops become vectors and changes no rounding.
$(BUILD)/obj/kernels/%.c.o: OPT = -O3 -g
$(BUILD)/obj/kernels/%.c.o: FLAGS += -fno-math-errno -fno-trapping-math -ffp-contract=off

# ---- CUDA: kernels/cuda and kernels/NAME/cuda_NAME.cu. With nvcc they become blasd_cuda.so; without a
# GPU the same files, over a shim and a stand-in library, are what tests/unit/cuda links with.
NVCC ?= $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CUDA_HOME ?= $(abspath $(dir $(NVCC))..)
CUDA_C = $(wildcard kernels/cuda/*.c)
CUDA_OWN = $(filter-out kernels/cuda/library_%,$(wildcard kernels/*/*.cu))
CUDA_OPS = $(sort $(patsubst cuda_%.cu,%,$(notdir $(wildcard kernels/*/cuda_*.cu))))
CUDA_ARCH ?= -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=[sm_90,compute_90]
CUDA_LIBS = -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcublas -lcublasLt -lcusolver -lcudart_static -lrt -ldl -lm
CUDA_SO = $(call obj,$(CUDA_C) $(CUDA_OWN) $(wildcard kernels/cuda/library_*.cu)) $(BUILD)/obj/gen/cuda_ops.c.o
# -Wshadow takes C's struct NAME beside function NAME for a mistake
SHIM = $(CXX) -std=c++20 -x c++ $(FLAGS) -Wno-shadow -fno-exceptions -fno-rtti
$(BUILD)/obj/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(NVCC) -std=c++20 -O3 -lineinfo $(CUDA_ARCH) -Isrc -I. -D_GNU_SOURCE -MMD -MP -Xcompiler -fPIC,-Wall,-Wextra -c $< -o $@
$(BUILD)/obj/shim/%.o: %
	@mkdir -p $(@D)
	$(SHIM) -c $< -o $@
$(BUILD)/obj/shim/kernels/%.o: OPT = -O2 -g -fno-math-errno -fno-trapping-math -ffp-contract=off
$(eval $(call archive,standin,$(call obj,$(CUDA_C)) $(BUILD)/obj/gen/cuda_ops.c.o \
    $(patsubst %,$(BUILD)/obj/shim/%.o,$(CUDA_OWN) $(wildcard kernels/cuda/*.cc))))
$(BUILD)/blasd_cuda.so: $(CUDA_SO) $(BUILD)/lib/kernels.a $(BUILD)/lib/core.a $(BUILD)/lib/base.a
	@echo '{ global: blasd_backend; local: *; };' > $(BUILD)/gen/blasd_cuda.map
	$(CXX) -shared -pthread -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group \
	    -Wl,--version-script=$(BUILD)/gen/blasd_cuda.map -Wl,-z,defs -Wl,--as-needed -llapacke -lopenblas $(CUDA_LIBS)
# The stand-in as a backend that blasd loads, with a driver library that has nothing in it: for tests of the service with a
# device of class cuda. Never beside build/blasd itself.
$(BUILD)/standin/blasd_cuda.so: $(BUILD)/lib/standin.a $(BUILD)/lib/kernels.a $(BUILD)/lib/core.a $(BUILD)/lib/base.a
	@mkdir -p $(@D) $(BUILD)/gen
	@echo '{ global: blasd_backend; local: *; };' > $(BUILD)/gen/standin.map
	$(CC) -shared -o $(@D)/libcuda.so.1 -x c /dev/null
	$(CXX) $(LDFLAGS) -shared -pthread -o $@ -Wl,-u,blasd_backend -Wl,--start-group $^ -Wl,--end-group \
	    -Wl,--version-script=$(BUILD)/gen/standin.map -Wl,-z,defs -Wl,--as-needed -llapacke -lopenblas -ldl -lm
ifneq ($(NVCC),)
ifeq ($(SANITIZE),)
all: $(BUILD)/blasd_cuda.so
endif
else
all: no-nvcc
endif
.PHONY: no-nvcc
no-nvcc:
	@echo 'blasd: no nvcc found (looked in /usr/local/cuda/bin and PATH): built without the CUDA backend'
$(BUILD)/gen/cuda_ops.c: FORCE
	$(call write_if_changed,mk/table.sh kernels/cuda/cuda_op.h 'struct blasd_cuda_op' blasd_cuda \
	    'struct blasd_cuda_op' blasd_cuda_ops 'struct blasd_kernel' blasd_cuda_kernels=.kernel -- $(CUDA_OPS))

# A folder kernels/NAME with op_NAME.c is an operation; one with cpu_NAME.c runs on the CPU.
$(BUILD)/gen/ops.c: FORCE
	$(call write_if_changed,{ mk/table.sh core/op.h 'struct blasd_op' blasd_op 'struct blasd_op' blasd_ops -- $(OPS); \
	    echo '_Static_assert($(words $(OPS)) <= BLASD_OPS_MOST$(comma) "raise BLASD_OPS_MOST in core/op.h");'; })
$(BUILD)/gen/cpu_kernels.c: FORCE
	$(call write_if_changed,mk/table.sh kernels/cpu/cpu.h 'struct blasd_kernel' blasd_cpu 'struct blasd_kernel' blasd_cpu_kernels -- $(CPU_KERNELS))
# one text, in this order: a function may use what stands above it
FUNCTIONS_LUA = $(patsubst %,src/queue/functions/%.lua,contract state packets endings giving recovery upgrade front_ends listing workers register)
$(BUILD)/gen/functions_lua.h: $(FUNCTIONS_LUA) Makefile
	@mkdir -p $(@D)
	@mk/bytes.sh functions_lua $(FUNCTIONS_LUA) >$@
$(BUILD)/gen/version.h: VERSION
	@mkdir -p $(@D)
	@echo '#define BLASD_VERSION "'$$(cat VERSION)'"' >$@
$(BUILD)/gen/openapi_json.h: api/openapi.json
	@mkdir -p $(@D)
	@mk/bytes.sh openapi_json $< >$@

# Unit tests: tests/unit/FOLDER/test_*.c, each a program, linked with everything it may know.
UNIT_C = $(wildcard tests/unit/*/test_*.c)
UNIT_CC = $(wildcard tests/unit/*/test_*.cc)
UNIT = $(UNIT_C:%.c=$(BUILD)/%) $(UNIT_CC:%.cc=$(BUILD)/%)
$(UNIT_CC:%.cc=$(BUILD)/%): $(BUILD)/tests/unit/%: $(BUILD)/obj/shim/tests/unit/%.cc.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcmocka $(LIBS)
# in NVML's place, loaded by these tests
$(BUILD)/tests/unit/cuda/fake_nvml.so: $(BUILD)/obj/tests/unit/cuda/fake_nvml.c.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -o $@ $<
$(BUILD)/tests/unit/cuda/test_cuda_nvml $(BUILD)/tests/unit/cuda/test_cuda_worker: $(BUILD)/tests/unit/cuda/fake_nvml.so
$(BUILD)/tests/unit/cuda/test_cuda_worker: $(filter-out %/client.a,$(ARCHIVES))
$(filter $(BUILD)/tests/unit/cuda/%,$(UNIT)): $(BUILD)/lib/standin.a $(BUILD)/lib/kernels.a $(BUILD)/lib/core.a $(BUILD)/lib/base.a
$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.c.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcmocka $(LIBS)
$(filter $(BUILD)/tests/unit/base/%,$(UNIT)): $(BUILD)/lib/base.a
$(filter $(BUILD)/tests/unit/core/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a
$(filter $(BUILD)/tests/unit/kernels/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a $(BUILD)/lib/kernels.a
$(filter $(BUILD)/tests/unit/wire/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a $(BUILD)/lib/wire.a $(BUILD)/lib/kernels.a
$(filter $(BUILD)/tests/unit/store/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a $(BUILD)/lib/store.a
$(filter $(BUILD)/tests/unit/queue/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a $(BUILD)/lib/wire.a $(BUILD)/lib/store.a $(BUILD)/lib/queue.a $(BUILD)/lib/kernels.a $(BUILD)/lib/main.a
$(filter $(BUILD)/tests/unit/main/%,$(UNIT)): $(BUILD)/lib/main.a $(filter-out %/client.a,$(ARCHIVES))
$(filter $(BUILD)/tests/unit/client/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a $(BUILD)/lib/client.a
$(filter $(BUILD)/tests/unit/http/% $(BUILD)/tests/unit/worker/%,$(UNIT)): $(filter-out %/client.a,$(ARCHIVES))

# Fuzzers: tests/fuzz/fuzz_NAME.c over tests/fuzz/corpus/NAME. As replay_NAME the corpus is a test of its own
# under any compiler; `make fuzz` searches on from it for FUZZ_SECONDS each.
FUZZ_C = $(filter-out %/fuzz_replay.c,$(wildcard tests/fuzz/fuzz_*.c))
REPLAY = $(patsubst tests/fuzz/fuzz_%.c,$(BUILD)/tests/fuzz/replay_%,$(FUZZ_C))
FUZZERS = $(patsubst tests/fuzz/fuzz_%.c,build/fuzz/tests/fuzz/fuzz_%,$(FUZZ_C))
FUZZ_SECONDS ?= 60
WIRE_ARCHIVES = $(BUILD)/lib/wire.a $(BUILD)/lib/core.a $(BUILD)/lib/base.a
$(BUILD)/tests/fuzz/replay_%: $(BUILD)/obj/tests/fuzz/fuzz_%.c.o $(BUILD)/obj/tests/fuzz/fuzz_replay.c.o $(WIRE_ARCHIVES)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $^ $(LIBS)
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.c.o $(WIRE_ARCHIVES)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -fsanitize=fuzzer -pthread -o $@ $^ $(LIBS)

# Files generated from tables in the code and committed, because people read them where they lie.
GENERATED_DOCS = api/errors.json docs/errors.md docs/limits.md docs/operations.md
$(BUILD)/generate: $(BUILD)/obj/docs/generate.c.o $(BUILD)/lib/kernels.a $(BUILD)/lib/core.a $(BUILD)/lib/base.a
	$(CC) $(LDFLAGS) -pthread -o $@ $< -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS)
.PHONY: generated check-generated
generated: $(BUILD)/generate
	@for f in $(GENERATED_DOCS); do $< $$(basename $$f) > $$f; done
	@$(PYTHON) api/generate.py
check-generated: $(BUILD)/generate
	@for f in $(GENERATED_DOCS); do $< $$(basename $$f) | cmp -s - $$f || { echo "$$f is stale: run make generated"; exit 1; }; done
	@$(PYTHON) api/generate.py --check

# Everything from nothing: these install what is missing first.
.PHONY: demo test run-suites test-unit test-sanitized test-integration lint fuzz
demo:
	@deploy/install-packages.sh build demo
	@echo 'blasd: building $(BUILD)/blasd (two to four minutes on two cores, where nothing is built yet)'
	@$(MAKE) --no-print-directory -j2 -s $(BUILD)/blasd
	@deploy/demo.sh
ifneq ($(NVCC),)
	@echo 'This used the CPU. There is a CUDA toolkit here: `make` builds the CUDA backend, too (some minutes more).'
endif

# every suite runs, whatever became of the one before it
SUITES = test-unit test-sanitized test-integration
test:
	@deploy/install-packages.sh build demo test
	@$(MAKE) --no-print-directory -j2 -s all $(UNIT) $(INTEGRATION)
	@$(MAKE) --no-print-directory -s run-suites
run-suites:
	@failed=; for s in $(SUITES); do $(MAKE) --no-print-directory -s $$s || failed="$$failed $$s"; done; \
	    [ -z "$$failed" ] || { echo "make test: failed:$$failed"; exit 1; }

# cmocka's own words are kept for a test that fails
test-unit: $(UNIT)
	@tests/run-units.sh $(UNIT)
# with the stand-in for a GPU as an A100, whose blocks have less shared memory than the H100 that it is else
# a stack of its own for each call, which newer sanitizers give, costs the shim's threads minutes
ASAN_OPTIONS ?= detect_stack_use_after_return=0
test-sanitized:
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/sanitized SANITIZE=address,undefined OPT="-O1 -g" $(UNIT:$(BUILD)/%=build/sanitized/%) $(REPLAY:$(BUILD)/%=build/sanitized/%)
	@ASAN_OPTIONS="$(ASAN_OPTIONS)" BLASD_STANDIN_CARD=8.0 tests/run-units.sh $(UNIT:$(BUILD)/%=build/sanitized/%)
	@for r in $(REPLAY:$(BUILD)/%=build/sanitized/%); do $$r tests/fuzz/corpus/$${r##*/replay_} >/dev/null || exit 1; done
BENCH_TESTED = $(addprefix $(BUILD)/bench/,machine/bench_machine load peer_mhd)
# for LD_PRELOAD
$(BUILD)/hang.so: $(BUILD)/obj/tests/integration/hang.c.o
	$(CC) $(LDFLAGS) -shared -o $@ $< -ldl
INTEGRATION = $(BUILD)/blasd $(BUILD)/hang.so $(CLIENT_PROGRAMS) $(BUILD)/standin/blasd_cuda.so $(BENCH_TESTED)
test-integration: $(INTEGRATION)
	@$(PYTHON) -m pytest -q -p no:cacheprovider tests/integration

fuzz:
	@deploy/install-packages.sh build test fuzz
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/fuzz CC=clang CXX=clang++ SANITIZE=fuzzer-no-link,address,undefined OPT="-O1 -g" $(FUZZERS)
	@for f in $(FUZZERS); do n=$${f##*/fuzz_}; mkdir -p build/fuzz/corpus/$$n; echo "fuzz $$n"; \
	  $$f -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 -artifact_prefix=build/fuzz/$$n- build/fuzz/corpus/$$n tests/fuzz/corpus/$$n >build/fuzz/$$n.log 2>&1 \
	  || { tail -n 40 build/fuzz/$$n.log; exit 1; }; grep number_of_executed build/fuzz/$$n.log; done

# Measurements: bench/README.md. `make bench ARGS="--quick --only json-256"` passes options on.
.PHONY: bench bench-kernels bench-programs bench-micro
BENCH_C = $(wildcard bench/*/bench_*.c)
BENCH = $(BENCH_C:%.c=$(BUILD)/%)
BENCH_PEERS = $(BUILD)/bench/peer_mhd $(BUILD)/bench/direct_blas
bench:
	@deploy/install-packages.sh build bench
	@$(MAKE) --no-print-directory -j2 -s all bench-programs
	@bench/peers/make-venv.sh fastapi $(BUILD)/bench-venv || true
	@bench/peers/make-venv.sh triton $(BUILD)/bench-venv-triton || true
	@bench/peers/make-venv.sh science $(BUILD)/bench-venv-science || true
	@case "$(ARGS)" in *--only*|*--list*) ;; *) $(MAKE) --no-print-directory -s bench-kernels ;; esac
	@$(PYTHON) bench/run --build $(BUILD) $(ARGS)
# the operations on the CPU beside OpenBLAS, NumPy, SciPy and scikit-learn, in turns in one run
bench-kernels:
	@deploy/install-packages.sh build bench
	@$(MAKE) --no-print-directory -j2 -s bench-programs
	@bench/peers/make-venv.sh science $(BUILD)/bench-venv-science
	@bench/kernels/run.sh $(BUILD) $(BUILD)/bench-venv-science/bin/python | tee $(BUILD)/bench/kernels.txt
bench-programs: $(BENCH) $(BENCH_PEERS) $(BUILD)/bench/load
bench-micro: $(BENCH)
	@for b in $^; do echo "== $$b"; $$b || exit 1; done
$(BUILD)/bench/load: $(call obj,$(wildcard bench/load/*.c))
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -o $@ $^ -ljansson -lm
$(BENCH_PEERS): $(BUILD)/bench/%: $(BUILD)/obj/bench/peers/%.c.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $^ $(shell pkg-config --libs libmicrohttpd jansson) -lopenblas
$(BUILD)/bench/machine/bench_machine: $(call obj,$(wildcard bench/machine/machine_*.c))
$(BENCH): $(BUILD)/bench/%: $(BUILD)/obj/bench/%.c.o $(ARCHIVES)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS)

# On a machine with a GPU: conformance, leaks, benchmarks; results in bench/results.
.PHONY: test-gpu
test-gpu:
	@tests/gpu/run.sh

lint:
	@deploy/install-packages.sh build test lint
	@$(PYTHON) .ci/lint.py
	@clang-format --dry-run -Werror $$(git ls-files -co --exclude-standard '*.c' '*.h' '*.cc' '*.cu' '*.cuh')
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/lint-gcc WERROR=-Werror OPT=-O1 lint-objects
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/lint-clang CC=clang CXX=clang++ WERROR=-Werror OPT=-O1 lint-objects
	@$(MAKE) --no-print-directory -s -j2 check-generated
# These need root: an image and a bare machine, made without a container engine.
.PHONY: test-image test-fresh soak
test-image:
	@deploy/test-image.sh
test-fresh:
	@deploy/fresh-machine.sh
# The load tests for a minute each, as a release deserves.
soak: all
	@BLASD_LOAD_SECONDS=60 $(PYTHON) -m pytest -q -p no:cacheprovider tests/integration/test_load.py

.PHONY: lint-objects
# what make test-gpu builds is compiled here too, or a machine with a GPU would be the first to know
GPU_PROGRAM_C = $(wildcard tests/gpu/gpu_*.c)
$(BUILD)/obj/tests/gpu/%.c.o: FLAGS += -Itests/gpu/bare -Itests/unit/kernels
# blasd is linked too, for it holds every CPU kernel: names that clash between files show only then
lint-objects: $(BUILD)/blasd $(ARCHIVES) $(BUILD)/lib/standin.a $(call obj,$(UNIT_C) $(FUZZ_C) $(BENCH_C) $(wildcard bench/machine/machine_*.c) $(GPU_PROGRAM_C) $(CLIENT_C) docs/generate.c)

.PHONY: clean
clean:
	rm -rf build

.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
