/* What the CUDA runtime's numbers for errors mean to this service: which of them end the process'
 * use of the device, and what to tell the user of a card or a driver that cannot be used. Plain
 * numbers, so that the words can be tested without a toolkit. */
#ifndef BLASD_KERNELS_CUDA_CUDA_STATUS_H
#define BLASD_KERNELS_CUDA_CUDA_STATUS_H

#include "kernels/cuda/library.h"

/* X(name of the runtime, without its cudaError; number) */
#define BLASD_CUDA_STATUSES(X)                                                                     \
    X(InitializationError, 3)                                                                      \
    X(StubLibrary, 34)                                                                             \
    X(InsufficientDriver, 35)                                                                      \
    X(CallRequiresNewerDriver, 36)                                                                 \
    X(DevicesUnavailable, 46)                                                                      \
    X(NoDevice, 100)                                                                               \
    X(InvalidKernelImage, 200)                                                                     \
    X(DeviceUninitialized, 201)                                                                    \
    X(NoKernelImageForDevice, 209)                                                                 \
    X(ECCUncorrectable, 214)                                                                       \
    X(NvlinkUncorrectable, 220)                                                                    \
    X(JitCompilerNotFound, 221)                                                                    \
    X(UnsupportedPtxVersion, 222)                                                                  \
    X(JitCompilationDisabled, 223)                                                                 \
    X(OperatingSystem, 304)                                                                        \
    X(IllegalAddress, 700)                                                                         \
    X(LaunchTimeout, 702)                                                                          \
    X(ContextIsDestroyed, 709)                                                                     \
    X(Assert, 710)                                                                                 \
    X(HardwareStackError, 714)                                                                     \
    X(IllegalInstruction, 715)                                                                     \
    X(MisalignedAddress, 716)                                                                      \
    X(InvalidAddressSpace, 717)                                                                    \
    X(InvalidPc, 718)                                                                              \
    X(LaunchFailure, 719)                                                                          \
    X(SystemNotReady, 802)                                                                         \
    X(SystemDriverMismatch, 803)                                                                   \
    X(CompatNotSupportedOnDevice, 804)                                                             \
    X(MpsConnectionFailed, 805)                                                                    \
    X(MpsRpcFailure, 806)                                                                          \
    X(MpsServerNotReady, 807)                                                                      \
    X(MpsMaxClientsReached, 808)                                                                   \
    X(MpsMaxConnectionsReached, 809)                                                               \
    X(MpsClientTerminated, 810)                                                                    \
    X(ExternalDevice, 911)                                                                         \
    X(Unknown, 999)
/* and those that not every toolkit since 12.5 has a name for */
#define BLASD_CUDA_LATER_STATUSES(X)                                                               \
    X(Contained, 226)                                                                              \
    X(TensorMemoryLeak, 721)
enum blasd_cuda_status {
#define X(name, number) BLASD_CUDA_##name = number,
    BLASD_CUDA_STATUSES(X) BLASD_CUDA_LATER_STATUSES(X)
#undef X
};

/* Whether nothing in this process can use the device any more. */
bool blasd_cuda_sticks(int status);

/* The driver, or a card that cannot be opened: -BLASD_E_no_such_device with what is wrong and what
 * to do. `status` is not 0; `says`: the runtime's words for it. */
int blasd_cuda_refuse(const struct blasd_gpu_driver *driver, int status, const char *says,
                      struct blasd_err *err);

#endif
