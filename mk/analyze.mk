# What reads the code without running it, and what watches threads: longer than `make lint` may take.
# A finding that is none is silenced where it stands, with the reason beside it, or in .ci/analyzer.txt, .ci/tidy.txt, .ci/cppcheck.txt
# and .clang-tidy.
ANALYZED = $(wildcard src/*/*.c clients/c/*.c kernels/*/*.c)
.PHONY: analyze analyze-gcc analyze-tidy analyze-cppcheck test-thread thread-programs
analyze:
	@deploy/install-packages.sh build analyze
	@$(MAKE) --no-print-directory -j2 -s $(GENERATED)
	@for part in gcc tidy cppcheck; do echo "analyze $$part"; $(MAKE) --no-print-directory -s analyze-$$part || exit 1; done
analyze-gcc:
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/analyze WERROR=-Werror OPT="-O1 -fanalyzer" analyze-objects
analyze-tidy: $(GENERATED)
	@printf '%s\n' $(ANALYZED) | xargs -P 2 -n 8 sh -c 'clang-tidy --quiet "$$@" -- $(filter-out -MMD -MP,$(CFLAGS)) 2>/dev/null; true' tidy \
	    | $(PYTHON) .ci/findings.py .ci/tidy.txt
# without what is generated: it takes minutes, and more, to go through the arrays of bytes that pages are made to
analyze-cppcheck:
	@cppcheck --quiet -j2 --std=c11 --enable=warning,performance,portability --inline-suppr --suppressions-list=.ci/cppcheck.txt \
	    --error-exitcode=1 -D__GNUC__ -D__x86_64__ -Isrc -I. $(ANALYZED)
.PHONY: analyze-objects
analyze-objects: $(call obj,$(ANALYZED))
ifneq ($(findstring -fanalyzer,$(OPT)),)
silence = $(eval $(call obj,$(word 1,$(1))): CFLAGS += -Wno-analyzer-$(word 2,$(1)))
$(foreach line,$(shell sed -n 's/^\([^\# ]*\) \([a-z-]*\): .*/\1:\2/p' .ci/analyzer.txt),$(call silence,$(subst :, ,$(line))))
endif

# Threads under ThreadSanitizer: the programs that test what has any, then a service of three loops that is killed under load.
THREADED = $(filter $(BUILD)/tests/unit/core/% $(BUILD)/tests/unit/store/% $(BUILD)/tests/unit/worker/% \
    $(BUILD)/tests/unit/http/% $(BUILD)/tests/unit/base/%,$(UNIT))
thread-programs: $(THREADED) $(BUILD)/blasd
test-thread:
	@$(MAKE) --no-print-directory -j2 -s BUILD=build/thread SANITIZE=thread OPT="-O1 -g" thread-programs
	@setarch -R tests/run-units.sh $(THREADED:$(BUILD)/%=build/thread/%)
	@BLASD=$(abspath build/thread/blasd) BLASD_NO_CONFINE=1 TSAN_OPTIONS="halt_on_error=1 exitcode=66" \
	    setarch -R $(PYTHON) tests/chaos/chaos.py --seconds 20 --lossy 0 --rate 60 --pause 1 --option=--loops --option=3 $(ARGS)
