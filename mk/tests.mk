# The tests that need no GPU, and what they are made of.

# Unit tests: tests/unit/FOLDER/test_*.c, each a program, linked with everything it may know.
UNIT_C = $(wildcard tests/unit/*/test_*.c)
UNIT_CC = $(wildcard tests/unit/*/test_*.cc)
UNIT = $(UNIT_C:%.c=$(BUILD)/%) $(UNIT_CC:%.cc=$(BUILD)/%)
# two hundred programs: where there is a linker that takes half the time, with that one
UNIT_LINKER := $(if $(shell command -v ld.gold 2>/dev/null),-fuse-ld=gold)
$(UNIT_CC:%.cc=$(BUILD)/%): $(BUILD)/tests/unit/%: $(BUILD)/obj/shim/tests/unit/%.cc.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(UNIT_LINKER) -pthread -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcmocka $(LIBS)
# in NVML's place, loaded by these tests
$(BUILD)/tests/unit/cuda/fake_nvml.so: $(BUILD)/obj/tests/unit/cuda/fake_nvml.c.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -shared -o $@ $<
# in gettimeofday's place in a redis-server, which is not ours to sanitize
$(BUILD)/tests/unit/queue/redis_clock.so: tests/unit/queue/redis_clock.c
	@mkdir -p $(@D)
	$(CC) -std=c17 -D_GNU_SOURCE -O2 -fPIC $(WARN) $(WARN_C) $(WERROR) -shared -o $@ $<
$(filter $(BUILD)/tests/unit/queue/% $(BUILD)/tests/unit/main/%,$(UNIT)): | $(BUILD)/tests/unit/queue/redis_clock.so
$(BUILD)/tests/unit/cuda/test_cuda_nvml $(BUILD)/tests/unit/cuda/test_cuda_worker: $(BUILD)/tests/unit/cuda/fake_nvml.so
$(BUILD)/tests/unit/cuda/test_cuda_worker $(BUILD)/tests/unit/cuda/test_cuda_graph: $(filter-out %/client.a %/cli.a,$(ARCHIVES))
$(filter $(BUILD)/tests/unit/cuda/%,$(UNIT)): $(BUILD)/lib/standin.a $(BUILD)/lib/kernels.a $(BUILD)/lib/core.a $(BUILD)/lib/base.a
$(BUILD)/tests/unit/%: $(BUILD)/obj/tests/unit/%.c.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) $(UNIT_LINKER) -pthread -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group -lcmocka $(LIBS)
$(filter $(BUILD)/tests/unit/base/%,$(UNIT)): $(BUILD)/lib/base.a
$(filter $(BUILD)/tests/unit/core/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a
$(filter $(BUILD)/tests/unit/kernels/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a $(BUILD)/lib/kernels.a
$(filter $(BUILD)/tests/unit/wire/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a $(BUILD)/lib/wire.a $(BUILD)/lib/kernels.a
$(filter $(BUILD)/tests/unit/oip/%,$(UNIT)): $(BUILD)/lib/oip.a $(BUILD)/lib/wire.a $(BUILD)/lib/core.a $(BUILD)/lib/base.a
$(filter $(BUILD)/tests/unit/trace/%,$(UNIT)): $(BUILD)/lib/trace.a $(BUILD)/lib/kernels.a $(BUILD)/lib/core.a $(BUILD)/lib/base.a
$(filter $(BUILD)/tests/unit/outgoing/%,$(UNIT)): $(BUILD)/lib/outgoing.a $(BUILD)/lib/base.a
$(filter $(BUILD)/tests/unit/store/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a $(BUILD)/lib/store.a
$(filter $(BUILD)/tests/unit/redis/%,$(UNIT)): $(BUILD)/lib/redis.a $(BUILD)/lib/base.a
$(filter $(BUILD)/tests/unit/auth/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a $(BUILD)/lib/auth.a $(BUILD)/lib/kernels.a
$(filter $(BUILD)/tests/unit/queue/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a $(BUILD)/lib/wire.a $(BUILD)/lib/store.a $(BUILD)/lib/redis.a $(BUILD)/lib/queue.a $(BUILD)/lib/kernels.a $(BUILD)/lib/main.a
$(filter $(BUILD)/tests/unit/main/%,$(UNIT)): $(BUILD)/lib/main.a $(filter-out %/client.a %/cli.a,$(ARCHIVES))
$(filter $(BUILD)/tests/unit/client/%,$(UNIT)): $(BUILD)/lib/base.a $(BUILD)/lib/core.a $(BUILD)/lib/client.a
$(filter $(BUILD)/tests/unit/http/% $(BUILD)/tests/unit/worker/%,$(UNIT)): $(filter-out %/client.a %/cli.a,$(ARCHIVES))

# Registers and shared memory of every kernel beside what the tests launch it with, and what it reads of memory by detours;
# needs cuobjdump and no GPU.
.PHONY: check-launches
CUOBJDUMP ?= $(firstword $(wildcard /usr/local/cuda/bin/cuobjdump) $(shell command -v cuobjdump 2>/dev/null) cuobjdump)
LAUNCHING = $(filter $(BUILD)/tests/unit/cuda/test_cuda_%,$(UNIT))
check-launches: $(BUILD)/blasd_cuda.so $(LAUNCHING)
	@$(PYTHON) tests/gpu/launches.py --cuobjdump $(CUOBJDUMP) $< $(LAUNCHING)
	@$(PYTHON) tests/gpu/machine_code.py --cuobjdump $(CUOBJDUMP) $<

# the C client's examples, and a program that tests drive
EXAMPLES = $(patsubst clients/c/examples/%.c,$(BUILD)/%,$(wildcard clients/c/examples/*.c))
CLIENT_PROGRAMS = $(EXAMPLES) $(BUILD)/share_probe $(BUILD)/client_probe
$(EXAMPLES): $(BUILD)/%: $(BUILD)/obj/clients/c/examples/%.c.o $(BUILD)/libblasd_client.a
CLIENT_C = $(wildcard clients/c/examples/*.c tests/integration/*.c tests/attack/*.c)
$(BUILD)/share_probe $(BUILD)/client_probe: $(BUILD)/%: $(BUILD)/obj/tests/integration/%.c.o $(BUILD)/libblasd_client.a
$(CLIENT_PROGRAMS):
	$(CC) $(LDFLAGS) -o $@ $^ $(shell pkg-config --libs libcurl jansson) -pthread

BENCH_TESTED = $(addprefix $(BUILD)/bench/,machine/bench_machine load peer_mhd power_iteration)
# for LD_PRELOAD
PRELOADED = $(BUILD)/hang.so $(BUILD)/inside.so $(BUILD)/slow_seed.so $(BUILD)/alloc_fail.so
$(BUILD)/hang.so $(BUILD)/inside.so $(BUILD)/slow_seed.so: $(BUILD)/%.so: $(BUILD)/obj/tests/integration/%.c.o
$(BUILD)/alloc_fail.so: $(BUILD)/obj/tests/attack/alloc_fail.c.o
$(PRELOADED):
	$(CC) $(LDFLAGS) -shared -pthread -o $@ $< -ldl
INTEGRATION = $(BUILD)/blasd $(PRELOADED) $(BUILD)/tests/unit/queue/redis_clock.so $(CLIENT_PROGRAMS) $(BUILD)/standin/blasd_cuda.so $(BENCH_TESTED)
# Suites, of which tests/run-suites.sh runs several and says how each went.
.PHONY: test-programs check-programs test-unit check-unit test-sanitized test-integration check-integration test-everything test-device-code
test-programs: $(UNIT) $(INTEGRATION)
# cmocka's own words are kept for a test that fails. What takes seconds of a processor is done by test-sanitized alone.
test-unit: $(UNIT)
	@BLASD_TEST_QUICK=1 tests/run-units.sh $(UNIT)
# without the shim's programs, of which some take seconds
CHECK_UNIT = $(filter-out $(BUILD)/tests/unit/cuda/%,$(UNIT))
check-programs: $(CHECK_UNIT) $(INTEGRATION)
check-unit: $(CHECK_UNIT)
	@BLASD_TEST_QUICK=1 tests/run-units.sh $(CHECK_UNIT)
# with the stand-in for a GPU as an A100, whose blocks have less shared memory than the H100 that it is else
# a stack of its own for each call, which newer sanitizers give, costs the shim's threads minutes
ASAN_OPTIONS ?= detect_stack_use_after_return=0
test-sanitized:
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/sanitized SANITIZE=address,undefined OPT="-O1 -g1" $(UNIT:$(BUILD)/%=build/sanitized/%) $(REPLAY:$(BUILD)/%=build/sanitized/%)
	@for r in $(REPLAY:$(BUILD)/%=build/sanitized/%); do $$r tests/fuzz/corpus/$${r##*/replay_} >/dev/null || { echo "$$r failed"; exit 1; }; done
	@ASAN_OPTIONS="$(ASAN_OPTIONS)" BLASD_STANDIN_CARD=8.0 tests/run-units.sh $(UNIT:$(BUILD)/%=build/sanitized/%)
# what a driver finishes for the card that it finds; code of cards themselves takes minutes more, and is not run here
test-device-code:
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/device OPT=-O1 CUDA_ARCH="-gencode arch=compute_80,code=compute_80" build/device/blasd_cuda.so
	@echo "device code: blasd_cuda.so links"
# A machine that lacks something fails everything: twenty say as much as a thousand, and the last lines name them.
# A test waits most of its time, so there are more at a time than processors. tests/pytest.ini says what the marks mean.
TEST_JOBS ?= $(shell n=$$(nproc); echo $$((n > 6 ? 24 : 4 * n)))
PYTEST = PYTHON="$(PYTHON)" TEST_JOBS=$(TEST_JOBS) tests/run-integration.sh
check-integration: $(INTEGRATION)
	@$(PYTEST) -m first tests/integration
test-integration: $(INTEGRATION)
	@$(PYTEST) -m "not full" tests/integration
test-everything: $(INTEGRATION)
	@$(PYTEST) tests/integration tests/attack

# whether tests notice that an operator has changed: tests/mutants.py says more
.PHONY: mutants
mutants:
	@$(PYTHON) tests/mutants.py $(ARGS)

# These need root: an image and a bare machine, made without a container engine.
.PHONY: test-image test-fresh test-wheels wheels soak
test-image:
	@deploy/test-image.sh
# The older a machine it is built on, the more machines the service's wheel is for.
wheels: $(BUILD)/blasd
	@PYTHON=$(PYTHON) deploy/wheels/build.sh $< $(BUILD)/wheels
test-wheels:
	@deploy/test-wheels.sh
test-fresh:
	@deploy/fresh-machine.sh
# Longer forms of what the suite runs for seconds, each with a seed to run it again. `make chaos ARGS="--kills 10000"`,
# `make attack SCALE=50`, `make soak ARGS="--seconds 1800"`.
.PHONY: chaos attack
SCALE ?= 10
chaos: $(BUILD)/blasd $(BUILD)/tests/unit/queue/redis_clock.so
	@BLASD=$(abspath $(BUILD)/blasd) $(PYTHON) tests/chaos/chaos.py $(ARGS)
attack: $(INTEGRATION)
	@BLASD_ATTACK_SCALE=$(SCALE) $(PYTHON) -m pytest -q -p no:cacheprovider --disable-warnings tests/attack $(ARGS)
# The load tests for a minute each, then half an hour of the same in which memory and descriptors must be flat.
soak: all
	@BLASD_LOAD_SECONDS=60 $(PYTHON) -m pytest -q -p no:cacheprovider tests/integration/test_load.py
	@BLASD=$(abspath $(BUILD)/blasd) $(PYTHON) tests/chaos/soak.py $(ARGS)

.PHONY: lint-objects
# what make test-gpu builds is compiled here too, or a machine with a GPU would be the first to know
GPU_PROGRAM_C = $(wildcard tests/gpu/gpu_*.c)
$(BUILD)/obj/tests/gpu/%.c.o: FLAGS += -Itests/unit/kernels
# blasd is linked too, for it holds every CPU kernel: names that clash between files show only then
lint-objects: $(BUILD)/blasd $(ARCHIVES) $(BUILD)/lib/standin.a $(call obj,$(UNIT_C) $(FUZZ_C) $(BENCH_C) $(wildcard bench/machine/machine_*.c) $(GPU_PROGRAM_C) $(CLIENT_C) docs/generate.c)
