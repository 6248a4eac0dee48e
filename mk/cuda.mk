# The CUDA backend: kernels/cuda and kernels/NAME/cuda_NAME.cu. With nvcc they become blasd_cuda.so; without a
# GPU the same files, over a shim and a stand-in library, are what tests/unit/cuda links with.
NVCC ?= $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CUDA_HOME ?= $(abspath $(dir $(NVCC))..)
CUDA_C = $(wildcard kernels/cuda/*.c)
# calls of the library: library_NAME.cu with nvcc; the operations' own have a library_NAME.cc beside them for tests
CUDA_LIBRARY = $(wildcard kernels/*/library_*.cu)
CUDA_OWN = $(filter-out $(CUDA_LIBRARY),$(wildcard kernels/*/*.cu))
CUDA_OPS = $(sort $(patsubst cuda_%.cu,%,$(notdir $(wildcard kernels/*/cuda_*.cu))))
# code of these cards as far as this nvcc knows them (A100 and later, H100, B200, RTX 50); for later ones what
# their driver makes of compute_90
ifndef CUDA_ARCH
CUDA_CODES := $(if $(NVCC),$(shell $(NVCC) --list-gpu-code 2>/dev/null))
COMMA := ,
CUDA_ARCH := $(foreach a,80 90 100 120,$(if $(filter sm_$a,$(CUDA_CODES)),-gencode arch=compute_$a$(COMMA)code=sm_$a)) \
    -gencode arch=compute_90$(COMMA)code=compute_90
endif
CUDA_LIBS = -L$(CUDA_HOME)/lib64 -Wl,-rpath,$(CUDA_HOME)/lib64 -lcublas -lcusolver -lcudart_static -lrt -ldl -lm
CUDA_SO = $(call obj,$(CUDA_C) $(CUDA_OWN) $(CUDA_LIBRARY)) $(BUILD)/obj/gen/cuda_ops.c.o
# -Wshadow takes C's struct NAME beside function NAME for a mistake
SHIM = $(CXX) -std=c++20 -x c++ $(FLAGS) -Wno-shadow -fno-exceptions -fno-rtti
$(BUILD)/obj/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(NVCC) -std=c++20 -O3 -lineinfo $(CUDA_ARCH) -Isrc -I. -D_GNU_SOURCE -MMD -MP -Xcompiler -fPIC,-Wall,-Wextra -c $< -o $@
$(BUILD)/obj/shim/%.o: %
	@mkdir -p $(@D)
	$(SHIM) -c $< -o $@
$(BUILD)/obj/shim/kernels/%.o $(BUILD)/obj/shim/tests/standin/%.o: OPT = -O2 -g -fno-math-errno -fno-trapping-math -ffp-contract=off
# the shim's own fibers, which take turns some hundred million times in the tests, are not what is sanitized
ifneq ($(findstring address,$(SANITIZE)),)
$(BUILD)/obj/shim/tests/standin/shim.cc.o: FLAGS += -O2 -fno-sanitize=address,undefined -DSHIM_ASAN
endif
$(eval $(call archive,standin,$(call obj,$(CUDA_C)) $(BUILD)/obj/gen/cuda_ops.c.o \
    $(patsubst %,$(BUILD)/obj/shim/%.o,$(CUDA_OWN) $(wildcard tests/standin/*.cc kernels/*/library_*.cc))))
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
# backends: each that can be built here, for an image or packages
.PHONY: cuda backends toolkit
backends: $(if $(NVCC),cuda)
ifneq ($(NVCC),)
cuda: $(BUILD)/blasd_cuda.so
toolkit: $(BUILD)/blasd
	@[ -e $(BUILD)/blasd_cuda.so ] || [ -n "$(SANITIZE)" ] || echo 'blasd: there is a CUDA toolkit here: `make cuda` adds the CUDA backend (some minutes)'
else
cuda:
	@echo 'blasd: no nvcc found (looked in /usr/local/cuda/bin and PATH); install a CUDA toolkit, 12.5 or later' >&2; exit 1
toolkit:
endif
$(BUILD)/gen/cuda_ops.c: FORCE
	$(call write_if_changed,mk/table.sh kernels/cuda/cuda_op.h 'struct blasd_cuda_op' blasd_cuda \
	    'struct blasd_cuda_op' blasd_cuda_ops 'struct blasd_kernel' blasd_cuda_kernels=.kernel -- $(CUDA_OPS))

# On a machine with a GPU: conformance, leaks, benchmarks; results in bench/results.
.PHONY: test-gpu
test-gpu:
	@tests/gpu/run.sh
