# Measurements: bench/README.md. `make bench ARGS="--quick --only json-256"` passes options on.
.PHONY: bench bench-kernels bench-programs bench-micro
BENCH_C = $(wildcard bench/*/bench_*.c)
BENCH = $(BENCH_C:%.c=$(BUILD)/%)
BENCH_PEERS = $(patsubst %,$(BUILD)/bench/%,peer_mhd direct_blas power_iteration)
bench:
	@deploy/install-packages.sh build bench
	@$(MAKE) --no-print-directory -j2 -s all bench-programs $(if $(wildcard /dev/nvidiactl /dev/dxg),backends)
	@bench/peers/make-venv.sh fastapi $(BUILD)/bench-venv || true
	@bench/peers/make-venv.sh triton $(BUILD)/bench-venv-triton || true
	@bench/peers/make-venv.sh science $(BUILD)/bench-venv-science || true
	@bench/peers/make-venv.sh inference $(BUILD)/bench-venv-inference || true
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
	$(CC) $(LDFLAGS) -o $@ $^ -ljansson -lssl -lcrypto -lm
$(BENCH_PEERS): $(BUILD)/bench/%: $(BUILD)/obj/bench/peers/%.c.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $^ $(shell pkg-config --libs libmicrohttpd jansson) -lopenblas
$(BUILD)/bench/machine/bench_machine: $(call obj,$(wildcard bench/machine/machine_*.c))
$(BENCH): $(BUILD)/bench/%: $(BUILD)/obj/bench/%.c.o $(ARCHIVES)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $(filter %.o,$^) -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS)
