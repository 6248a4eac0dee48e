/* The threads that work on one system together: some lanes of a warp, or a block.
 *
 * A team has `width` lanes that can exchange registers (its crew: all of it but for a block, whose
 * crew is its first warp). Sums are the same whoever computes them, and the same in all threads.
 * Knows nothing of systems. Read next: solve_block.cuh. */
#ifndef BLASD_KERNELS_SOLVE_TEAM_CUH
#define BLASD_KERNELS_SOLVE_TEAM_CUH

#include "kernels/cuda/gpu.h"

static __device__ inline bool is_finite(double x) {
    return x - x == 0;
}
static __device__ inline double size_of(double x) {
    return x < 0 ? -x : x;
}
/* W lanes of a warp, side by side. */
template <int W> struct team_of_lanes {
    static constexpr int width = W;
    static constexpr bool block = false;
    int lane;           /* of the team */
    unsigned own, mask; /* its lanes of the warp; those that meet */
    __device__ team_of_lanes() {
        int in_warp = (int)(threadIdx.x % BLASD_WARP);
        lane = in_warp % W;
        mask = own =
            W == BLASD_WARP ? BLASD_WARP_ALL : ((1u << (W % BLASD_WARP)) - 1u) << (in_warp - lane);
    }
    /* All teams of a warp take the same way, which spares a wait at each exchange. */
    __device__ void in_step() {
        mask = BLASD_WARP_ALL;
    }
    __device__ int rank() const {
        return lane;
    }
    __device__ int size() const {
        return W;
    }
    __device__ team_of_lanes crew() const {
        return *this;
    }
    __device__ void sync() const {
        __syncwarp(mask);
    }
    template <class T> __device__ T shuffle(T value, int from) const {
        return __shfl_sync(mask, value, from, W);
    }
    __device__ double sum(double value) const {
        for (int by = W / 2; by > 0; by /= 2) value += __shfl_xor_sync(mask, value, by, W);
        return value;
    }
    __device__ double most(double value) const {
        for (int by = W / 2; by > 0; by /= 2) {
            double other = __shfl_xor_sync(mask, value, by, W);
            value = other > value ? other : value;
        }
        return value;
    }
    __device__ int any(int value) const {
        return (__ballot_sync(mask, value) & own) != 0;
    }
    /* Where the largest value is; of equal ones the least place. */
    __device__ int largest(double value, int at) const {
        for (int by = W / 2; by > 0; by /= 2) {
            double other = __shfl_xor_sync(mask, value, by, W);
            int place = __shfl_xor_sync(mask, at, by, W);
            if (other > value || (other == value && place < at)) {
                value = other;
                at = place;
            }
        }
        return at;
    }
};

/* A whole block of full warps. */
struct team_of_block {
    static constexpr int width = BLASD_WARP;
    static constexpr bool block = true;
    __device__ int rank() const {
        return (int)threadIdx.x;
    }
    __device__ int size() const {
        return (int)blockDim.x;
    }
    __device__ team_of_lanes<BLASD_WARP> crew() const {
        return team_of_lanes<BLASD_WARP>();
    }
    __device__ void sync() const {
        __syncthreads();
    }
    template <class T> __device__ T shuffle(T value, int from) const {
        return __shfl_sync(BLASD_WARP_ALL, value, from);
    }
    __device__ double sum(double value) const {
        BLASD_STATIC_SHARED(double, parts, [32]);
        double all = crew().sum(value);
        if (threadIdx.x % BLASD_WARP == 0) parts[threadIdx.x / BLASD_WARP] = all;
        __syncthreads();
        all = 0;
        for (int i = 0; i < (int)blockDim.x / BLASD_WARP; i++) all += parts[i];
        __syncthreads();
        return all;
    }
    __device__ double most(double value) const {
        BLASD_STATIC_SHARED(double, parts, [32]);
        double all = crew().most(value);
        if (threadIdx.x % BLASD_WARP == 0) parts[threadIdx.x / BLASD_WARP] = all;
        __syncthreads();
        all = parts[0];
        for (int i = 1; i < (int)blockDim.x / BLASD_WARP; i++)
            all = parts[i] > all ? parts[i] : all;
        __syncthreads();
        return all;
    }
    __device__ int any(int value) const {
        return __syncthreads_or(value);
    }
    __device__ int largest(double value, int at) const {
        BLASD_STATIC_SHARED(double, parts, [32]);
        BLASD_STATIC_SHARED(int, places, [32]);
        double best = crew().most(value);
        at = crew().largest(value, at);
        if (threadIdx.x % BLASD_WARP == 0) {
            parts[threadIdx.x / BLASD_WARP] = best;
            places[threadIdx.x / BLASD_WARP] = at;
        }
        __syncthreads();
        best = parts[0];
        at = places[0];
        for (int i = 1; i < (int)blockDim.x / BLASD_WARP; i++)
            if (parts[i] > best || (parts[i] == best && places[i] < at)) {
                best = parts[i];
                at = places[i];
            }
        __syncthreads();
        return at;
    }
};

#endif
