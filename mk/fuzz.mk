# Fuzzers: tests/fuzz/fuzz_NAME.c over tests/fuzz/corpus/NAME. As replay_NAME the corpus is a test of its own
# under any compiler; `make fuzz` searches on from it for FUZZ_SECONDS each.
FUZZ_C = $(filter-out %/fuzz_replay.c,$(wildcard tests/fuzz/fuzz_*.c))
REPLAY = $(patsubst tests/fuzz/fuzz_%.c,$(BUILD)/tests/fuzz/replay_%,$(FUZZ_C))
FUZZERS = $(patsubst tests/fuzz/fuzz_%.c,build/fuzz/tests/fuzz/fuzz_%,$(FUZZ_C))
FUZZ_SECONDS ?= 60
# those of the way in have operations of their own
WIRE_FUZZERS = frame intake_json intake_multipart intake_safetensors oip reference
FUZZ_LINK = -Wl,--start-group $(filter %.a,$^) -Wl,--end-group $(LIBS)
$(WIRE_FUZZERS:%=$(BUILD)/tests/fuzz/replay_%) $(WIRE_FUZZERS:%=$(BUILD)/tests/fuzz/fuzz_%): \
    $(BUILD)/lib/oip.a $(BUILD)/lib/wire.a $(BUILD)/lib/core.a $(BUILD)/lib/base.a
OTHER_FUZZERS = $(filter-out $(WIRE_FUZZERS),$(patsubst tests/fuzz/fuzz_%.c,%,$(FUZZ_C)))
$(OTHER_FUZZERS:%=$(BUILD)/tests/fuzz/replay_%) $(OTHER_FUZZERS:%=$(BUILD)/tests/fuzz/fuzz_%): $(BUILD)/lib/main.a $(ARCHIVES)
$(BUILD)/tests/fuzz/replay_%: $(BUILD)/obj/tests/fuzz/fuzz_%.c.o $(BUILD)/obj/tests/fuzz/fuzz_replay.c.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -pthread -o $@ $(filter %.o,$^) $(FUZZ_LINK)
$(BUILD)/tests/fuzz/fuzz_%: $(BUILD)/obj/tests/fuzz/fuzz_%.c.o
	@mkdir -p $(@D)
	$(CC) $(LDFLAGS) -fsanitize=fuzzer -pthread -o $@ $(filter %.o,$^) $(FUZZ_LINK)

# Each target from its corpus, then the whole front end over a socket: a sanitized service, and requests mutated anew each round.
.PHONY: fuzz
fuzz:
	@deploy/install-packages.sh build test fuzz
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/fuzz CC=clang CXX=clang++ SANITIZE=fuzzer-no-link,address,undefined OPT="-O1 -g" $(FUZZERS)
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/sanitized SANITIZE=address,undefined OPT="-O1 -g" build/sanitized/blasd
	@for f in $(FUZZERS); do n=$${f##*/fuzz_}; mkdir -p build/fuzz/corpus/$$n; echo "fuzz $$n"; \
	  $$f -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 -artifact_prefix=build/fuzz/$$n- build/fuzz/corpus/$$n tests/fuzz/corpus/$$n >build/fuzz/$$n.log 2>&1 \
	  || { tail -n 40 build/fuzz/$$n.log; exit 1; }; grep number_of_executed build/fuzz/$$n.log; done
	@tests/fuzz/front_end.sh build/sanitized/blasd $(FUZZ_SECONDS)
