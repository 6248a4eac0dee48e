# Fuzzers: tests/fuzz/fuzz_NAME.c over tests/fuzz/corpus/NAME. As replay_NAME the corpus is a test of its own
# under any compiler; `make fuzz` searches on from it for FUZZ_SECONDS each.
FUZZ_C = $(filter-out %/fuzz_replay.c,$(wildcard tests/fuzz/fuzz_*.c))
REPLAY = $(patsubst tests/fuzz/fuzz_%.c,$(BUILD)/tests/fuzz/replay_%,$(FUZZ_C))
FUZZERS = $(patsubst tests/fuzz/fuzz_%.c,build/fuzz/tests/fuzz/fuzz_%,$(FUZZ_C))
FUZZ_SECONDS ?= 60
WIRE_ARCHIVES = $(BUILD)/lib/oip.a $(BUILD)/lib/wire.a $(BUILD)/lib/core.a $(BUILD)/lib/base.a
$(BUILD)/tests/fuzz/replay_%: $(BUILD)/obj/tests/fuzz/fuzz_%.c.o $(BUILD)/obj/tests/fuzz/fuzz_replay.c.o $(WIRE_ARCHIVES)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $^ $(LIBS)
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.c.o $(WIRE_ARCHIVES)
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -fsanitize=fuzzer -pthread -o $@ $^ $(LIBS)

.PHONY: fuzz
fuzz:
	@deploy/install-packages.sh build test fuzz
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/fuzz CC=clang CXX=clang++ SANITIZE=fuzzer-no-link,address,undefined OPT="-O1 -g" $(FUZZERS)
	@for f in $(FUZZERS); do n=$${f##*/fuzz_}; mkdir -p build/fuzz/corpus/$$n; echo "fuzz $$n"; \
	  $$f -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 -artifact_prefix=build/fuzz/$$n- build/fuzz/corpus/$$n tests/fuzz/corpus/$$n >build/fuzz/$$n.log 2>&1 \
	  || { tail -n 40 build/fuzz/$$n.log; exit 1; }; grep number_of_executed build/fuzz/$$n.log; done
