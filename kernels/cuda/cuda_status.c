/* The words. A sentence says what is there, what is needed and what to do. */
#include "kernels/cuda/cuda_status.h"

bool blasd_cuda_sticks(int status) {
    switch (status) {
    case BLASD_CUDA_DevicesUnavailable:
    case BLASD_CUDA_DeviceUninitialized:
    case BLASD_CUDA_ECCUncorrectable:
    case BLASD_CUDA_NvlinkUncorrectable:
    case BLASD_CUDA_Contained:
    case BLASD_CUDA_IllegalAddress:
    case BLASD_CUDA_LaunchTimeout:
    case BLASD_CUDA_ContextIsDestroyed:
    case BLASD_CUDA_Assert:
    case BLASD_CUDA_HardwareStackError:
    case BLASD_CUDA_IllegalInstruction:
    case BLASD_CUDA_MisalignedAddress:
    case BLASD_CUDA_InvalidAddressSpace:
    case BLASD_CUDA_InvalidPc:
    case BLASD_CUDA_LaunchFailure:
    case BLASD_CUDA_TensorMemoryLeak:
    case BLASD_CUDA_MpsClientTerminated:
    case BLASD_CUDA_ExternalDevice:
    case BLASD_CUDA_Unknown: return true;
    default: return false;
    }
}

static int refuse_old_driver(const struct blasd_gpu_driver *driver, struct blasd_err *err) {
    int has = driver->version, needs = driver->runtime;
    if (has == 0)
        return blasd_fail(err, BLASD_E_no_such_device, "device",
                          "the NVIDIA driver does not answer: install or repair it "
                          "(`nvidia-smi` must work); in a container, start it with --gpus all");
    return blasd_fail(err, BLASD_E_no_such_device, "device",
                      "the NVIDIA driver is too old: it knows CUDA up to %d.%d, and blasd_cuda.so "
                      "was built with CUDA %d.%d; update the driver, or build blasd with an older "
                      "toolkit (12.5 or later)",
                      has / 1000, has % 1000 / 10, needs / 1000, needs % 1000 / 10);
}

/* What is wrong and what helps; NULL: nothing is known beyond the runtime's own words. */
static const char *advice(int status) {
    switch (status) {
    case BLASD_CUDA_NoDevice:
        return "the NVIDIA driver shows this process no card: see `nvidia-smi` and "
               "CUDA_VISIBLE_DEVICES; in a container, start it with --gpus all";
    case BLASD_CUDA_StubLibrary:
        return "libcuda.so.1 is the toolkit's stub and no driver: install the NVIDIA driver, and "
               "take the folder `stubs` out of LD_LIBRARY_PATH";
    case BLASD_CUDA_SystemNotReady:
        return "the NVIDIA driver is not ready: on a machine with NVSwitch the service "
               "nvidia-fabricmanager must run, in the driver's version";
    case BLASD_CUDA_SystemDriverMismatch:
        return "libcuda.so.1 and the NVIDIA driver in the kernel are of different versions: "
               "restart the machine after an update of the driver, or the container";
    case BLASD_CUDA_CompatNotSupportedOnDevice:
        return "the forward-compatibility libcuda.so.1 (package cuda-compat) does not take this "
               "card: remove it and update the driver";
    case BLASD_CUDA_InitializationError:
    case BLASD_CUDA_OperatingSystem:
    case BLASD_CUDA_Unknown:
        return "the NVIDIA driver does not start: see whether `nvidia-smi` works and whether this "
               "user may open /dev/nvidia*, nvidia-uvm included";
    case BLASD_CUDA_DevicesUnavailable:
        return "the card is taken: another process has it in exclusive mode, or its mode forbids "
               "computing (`nvidia-smi -c DEFAULT`)";
    case BLASD_CUDA_MpsConnectionFailed:
    case BLASD_CUDA_MpsRpcFailure:
    case BLASD_CUDA_MpsServerNotReady:
    case BLASD_CUDA_MpsMaxClientsReached:
    case BLASD_CUDA_MpsMaxConnectionsReached:
        return "the card is shared through NVIDIA MPS, which does not take this process: see "
               "nvidia-cuda-mps-control and CUDA_MPS_PIPE_DIRECTORY";
    case BLASD_CUDA_InvalidKernelImage:
    case BLASD_CUDA_NoKernelImageForDevice:
        return "blasd_cuda.so holds no code for this card: build it with this card's compute "
               "capability in CUDA_ARCH (Makefile)";
    case BLASD_CUDA_UnsupportedPtxVersion:
    case BLASD_CUDA_JitCompilerNotFound:
    case BLASD_CUDA_JitCompilationDisabled:
        return "blasd_cuda.so holds no code for this card, and the NVIDIA driver cannot make it: "
               "update the driver, or build with this card's compute capability in CUDA_ARCH";
    default: return NULL;
    }
}

int blasd_cuda_refuse(const struct blasd_gpu_driver *driver, int status, const char *says,
                      struct blasd_err *err) {
    const char *text = advice(status);
    if (status == BLASD_CUDA_InsufficientDriver || status == BLASD_CUDA_CallRequiresNewerDriver)
        return refuse_old_driver(driver, err);
    if (text != NULL)
        return blasd_fail(err, BLASD_E_no_such_device, "device", "%s (CUDA error %d)", text,
                          status);
    return blasd_fail(err, BLASD_E_no_such_device, "device",
                      "the card cannot be used: %.100s (CUDA error %d); see whether `nvidia-smi` "
                      "and CUDA's own samples work",
                      says, status);
}
